#include "convert/type_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "base/text.h"

namespace strata::convert {
namespace {

using model::TensorClass;
using quant::Type;

// llama.cpp's list of what a file is mostly made of.
constexpr std::array kFileTypes = {
    std::pair(Type::f32, 0U),     std::pair(Type::f16, 1U),      std::pair(Type::q4_0, 2U),
    std::pair(Type::q8_0, 7U),    std::pair(Type::q5_0, 8U),     std::pair(Type::q5_1, 9U),
    std::pair(Type::q2_k, 10U),   std::pair(Type::q3_k, 11U),    std::pair(Type::q4_k, 14U),
    std::pair(Type::q5_k, 16U),   std::pair(Type::q6_k, 18U),    std::pair(Type::iq2_xxs, 19U),
    std::pair(Type::iq2_xs, 20U), std::pair(Type::iq3_xxs, 23U), std::pair(Type::iq4_nl, 25U),
    std::pair(Type::iq3_s, 26U),  std::pair(Type::iq2_s, 28U),   std::pair(Type::iq4_xs, 30U),
    std::pair(Type::iq1_m, 31U),  std::pair(Type::bf16, 32U),    std::pair(Type::mxfp4, 38U),
    std::pair(Type::nvfp4, 39U),  std::pair(Type::q2_0, 41U),
};
constexpr std::uint32_t kFileTypeGuessed = 1024;
// Above every type id of the format.
constexpr std::uint32_t kTypeIdsEnd = 64;

constexpr float kHalfMax = 65504.0F;

// The largest magnitude that the format is sure to hold: of F16 itself, and of block formats, whose
// scales are F16.
float magnitude_max(Type type) {
    const bool half = type == Type::f16 || quant::info(type).block > 1;
    return half ? kHalfMax : std::numeric_limits<float>::max();
}

bool is_block_format(Type type) { return quant::info(type).block > 1; }

bool is_sensitive(std::string_view name) {
    return name.ends_with("ssm_alpha.weight") || name.ends_with("ssm_beta.weight") ||
           name.ends_with("indexer.q_proj.weight") || name.ends_with("indexer.k_proj.weight");
}

Type unchecked(const TypeChoice& choice, const model::TensorSpec& spec) {
    const Type dense = choice.dense.value_or(choice.type);
    switch (spec.tensor_class) {
        case TensorClass::small:
        case TensorClass::router:
            return Type::f32;
        case TensorClass::expert_gate:
            return choice.experts_gate.value_or(choice.type);
        case TensorClass::expert_down:
            return choice.experts_down.value_or(choice.type);
        case TensorClass::embedding:
            return choice.embedding.value_or(choice.type);
        case TensorClass::head:
            return choice.head.value_or(choice.type);
        case TensorClass::ngram_table:
            return choice.table.value_or(choice.type);
        case TensorClass::hyper_connection:
            return choice.hyper.value_or(is_block_format(choice.type) ? Type::bf16 : choice.type);
        case TensorClass::delta_net:
        case TensorClass::attention:
            return is_sensitive(spec.name) && is_block_format(dense) ? Type::bf16 : dense;
        case TensorClass::shared_expert:
        case TensorClass::ngram:
        case TensorClass::mtp:
            break;
    }
    return dense;
}

}  // namespace

Result<Type> parse_type(std::string_view text) {
    const quant::TypeInfo* info = quant::find_type(text);
    if (info == nullptr || info->encode == nullptr) {
        return STRATA_ERROR(quote(text),
                            " is no type that tensors can be written in, wanted one of ",
                            writable_types());
    }
    return info->type;
}

Result<TypeChoice> read_types(const TypeNames& names) {
    TypeChoice choice;
    STRATA_ASSIGN(choice.type, parse_type(names.type));
    const struct {
        const std::string& name;
        std::optional<Type>& type;
    } parts[] = {{names.experts_gate, choice.experts_gate},
                 {names.experts_down, choice.experts_down},
                 {names.dense, choice.dense},
                 {names.hyper, choice.hyper},
                 {names.embedding, choice.embedding},
                 {names.head, choice.head},
                 {names.table, choice.table}};
    for (const auto& part : parts) {
        if (part.name.empty()) continue;
        STRATA_ASSIGN(part.type, parse_type(part.name));
    }
    return choice;
}

bool names(const TypeChoice& choice, TensorClass c) {
    switch (c) {
        case TensorClass::expert_gate:
            return choice.experts_gate.has_value();
        case TensorClass::expert_down:
            return choice.experts_down.has_value();
        case TensorClass::embedding:
            return choice.embedding.has_value();
        case TensorClass::head:
            return choice.head.has_value();
        case TensorClass::ngram_table:
            return choice.table.has_value();
        case TensorClass::hyper_connection:
            return choice.hyper.has_value();
        case TensorClass::small:
        case TensorClass::router:
            return false;
        case TensorClass::delta_net:
        case TensorClass::attention:
        case TensorClass::shared_expert:
        case TensorClass::ngram:
        case TensorClass::mtp:
            break;
    }
    return choice.dense.has_value();
}

Result<Type> choose_type(const TypeChoice& choice, const model::TensorSpec& spec) {
    const Type type = unchecked(choice, spec);
    const quant::TypeInfo& info = quant::info(type);
    if (info.encode == nullptr) {
        return STRATA_ERROR("tensor ", quote(spec.name), " cannot be written as ", info.name,
                            ", wanted a type of fractions");
    }
    if (spec.shape[0] % static_cast<std::uint64_t>(info.block) != 0) {
        return STRATA_ERROR("tensor ", quote(spec.name), " has rows of ", spec.shape[0],
                            " values, and ", info.name, " wants a multiple of ", info.block,
                            "; choose another type for the ", model::class_name(spec.tensor_class));
    }
    return type;
}

std::uint32_t file_type(Type type) {
    const auto found = std::find_if(kFileTypes.begin(), kFileTypes.end(),
                                    [&](const auto& entry) { return entry.first == type; });
    return found == kFileTypes.end() ? kFileTypeGuessed : found->second;
}

Status refuse_types(std::initializer_list<NamedType> types, std::string_view why) {
    for (const auto& [type, part] : types) {
        if (!*type) continue;
        return STRATA_ERROR("a type for ", part, " was given (", quant::info(**type).name,
                            "), and ", why);
    }
    return Ok{};
}

Status check_layer_types(const TypeChoice& choice) {
    return refuse_types({{&choice.embedding, "the embedding"},
                         {&choice.head, "the head"},
                         {&choice.table, "the n-gram table"}},
                        "an MTP layer alone has none");
}

Status check_range(Type type, const std::string& file, std::string_view name,
                   std::span<const float> values) {
    const float limit = magnitude_max(type);
    for (const float value : values) {
        if (!(std::fabs(value) <= limit)) {
            return STRATA_ERROR(quote(file), ": tensor ", quote(name), " has the value ", value,
                                ", and ", quant::info(type).name, " is sure to hold at most ",
                                limit);
        }
    }
    return Ok{};
}

}  // namespace strata::convert

namespace strata {

Status check(const TypeNames& names, bool keep) {
    TypeNames read = names;
    if (keep && names.type == kKeepType) read.type = TypeNames{}.type;
    STRATA_TRY(convert::read_types(read));
    return Ok{};
}

std::string writable_types() {
    std::string list;
    for (std::uint32_t id = 0; id < convert::kTypeIdsEnd; ++id) {
        const quant::TypeInfo* info = quant::find_type(id);
        if (info == nullptr || info->encode == nullptr) continue;
        if (!list.empty()) list += ", ";
        for (const char c : info->name) {
            list += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        }
    }
    return list;
}

}  // namespace strata
