#include "quant/type.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/checked.h"
#include "base/text.h"
#include "quant/formats.h"

namespace strata::quant {
namespace {

constexpr std::array kFormats = {&kF32,   &kF16,    &kBF16,    &kI64,    &kQ8_0,  &kQ5_1,
                                 &kQ5_0,  &kQ4_0,   &kQ2_0,    &kQ6_K,   &kQ5_K,  &kQ4_K,
                                 &kQ3_K,  &kQ2_K,   &kIQ4_XS,  &kIQ4_NL, &kIQ3_S, &kIQ3_XXS,
                                 &kIQ2_S, &kIQ2_XS, &kIQ2_XXS, &kIQ1_M,  &kMXFP4, &kNVFP4};

struct Name {
    std::uint32_t id;
    std::string_view name;
};

// ggml's type ids. The gaps are formats that it has removed.
constexpr std::array kNames = std::to_array<Name>({
    {0, "F32"},     {1, "F16"},    {2, "Q4_0"},     {3, "Q4_1"},    {6, "Q5_0"},     {7, "Q5_1"},
    {8, "Q8_0"},    {9, "Q8_1"},   {10, "Q2_K"},    {11, "Q3_K"},   {12, "Q4_K"},    {13, "Q5_K"},
    {14, "Q6_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {24, "I8"},      {25, "I16"},
    {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},  {30, "BF16"},    {34, "TQ1_0"},
    {35, "TQ2_0"},  {39, "MXFP4"}, {40, "NVFP4"},   {41, "Q1_0"},   {42, "Q2_0"},
});

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

const TypeInfo* find_type(std::uint32_t gguf_id) {
    // By number: kernels ask for every few rows.
    static const auto formats = [] {
        std::array<const TypeInfo*, kTypesMax> by_number{};
        for (const TypeInfo* format : kFormats) {
            by_number[static_cast<std::size_t>(format->type)] = format;
        }
        return by_number;
    }();
    return gguf_id < formats.size() ? formats[gguf_id] : nullptr;
}

const TypeInfo* find_type(std::string_view name) {
    for (const TypeInfo* format : kFormats) {
        if (std::ranges::equal(format->name, name, {}, upper, upper)) return format;
    }
    return nullptr;
}

const TypeInfo& info(Type type) {
    const TypeInfo* found = find_type(static_cast<std::uint32_t>(type));
    STRATA_CHECK(found != nullptr);
    return *found;
}

std::string type_name(std::uint32_t gguf_id) {
    const auto* found = std::ranges::find(kNames, gguf_id, &Name::id);
    if (found == kNames.end()) return concat(gguf_id, " (unknown)");
    return std::string(found->name);
}

std::string readable_types() {
    std::string list;
    for (const TypeInfo* format : kFormats) {
        if (!list.empty()) list += ", ";
        list += format->name;
    }
    return list;
}

Result<std::uint64_t> row_bytes(Type type, std::uint64_t columns) {
    const TypeInfo& format = info(type);
    const auto block = static_cast<std::uint64_t>(format.block);
    if (columns % block != 0) {
        return STRATA_ERROR("a row of ", columns, " values cannot be ", format.name,
                            ", whose blocks hold ", block, " values");
    }
    const auto bytes = checked_mul(columns / block, static_cast<std::uint64_t>(format.block_bytes));
    if (!bytes) {
        return STRATA_ERROR("a row of ", columns, " values of type ", format.name,
                            " has more bytes than 64 bits can count");
    }
    return *bytes;
}

}  // namespace strata::quant
