#include "safetensors/header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/text.h"
#include "safetensors/json.h"

namespace strata::safetensors {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;

struct DtypeInfo {
    std::string_view name;
    Dtype dtype;
    std::uint64_t bytes;
};

constexpr std::array kDtypes = std::to_array<DtypeInfo>({
    {"F32", Dtype::f32, 4},
    {"F16", Dtype::f16, 2},
    {"BF16", Dtype::bf16, 2},
    {"I64", Dtype::i64, 8},
    {"BOOL", Dtype::other, 1},
    {"U8", Dtype::other, 1},
    {"I8", Dtype::other, 1},
    {"F8_E4M3", Dtype::other, 1},
    {"F8_E5M2", Dtype::other, 1},
    {"F8_E8M0", Dtype::other, 1},
    {"U16", Dtype::other, 2},
    {"I16", Dtype::other, 2},
    {"U32", Dtype::other, 4},
    {"I32", Dtype::other, 4},
    {"U64", Dtype::other, 8},
    {"F64", Dtype::other, 8},
});

const DtypeInfo* find_dtype(std::string_view name) {
    for (const DtypeInfo& dtype : kDtypes) {
        if (dtype.name == name) return &dtype;
    }
    return nullptr;
}

// An array of at most `count_max` integers of 0 or more; empty if `value` is anything else.
std::optional<std::vector<std::uint64_t>> unsigned_array(const json& value, std::size_t count_max) {
    if (!value.is_array() || value.size() > count_max) return std::nullopt;
    std::vector<std::uint64_t> numbers;
    for (const json& element : value) {
        if (!element.is_number_unsigned()) return std::nullopt;
        numbers.push_back(element.get<std::uint64_t>());
    }
    return numbers;
}

// Empty if the product does not fit 63 bits. Dimensions of 0 make an empty tensor.
std::optional<std::uint64_t> product(const std::vector<std::uint64_t>& shape) {
    std::optional<std::uint64_t> elements = 1;
    for (const std::uint64_t size : shape) {
        if (elements) elements = checked_mul(*elements, size);
    }
    constexpr std::uint64_t kMax{std::numeric_limits<std::int64_t>::max()};
    return elements && *elements <= kMax ? elements : std::nullopt;
}

// Reads the description of one tensor; `data` is all that follows the header.
Result<Tensor> read_tensor(const std::string& path, const std::string& name, const json& entry,
                           std::span<const std::byte> data) {
    const std::string where = concat(quote(path), ": tensor ", quote(name));
    const auto member = [&](const char* key) {
        return entry.is_object() && entry.contains(key) ? entry.at(key) : json();
    };
    const json dtype_value = member("dtype");
    const auto* dtype_name = dtype_value.get_ptr<const std::string*>();
    const auto shape = unsigned_array(member("shape"), kDimensionsMax);
    const auto offsets = unsigned_array(member("data_offsets"), 2);
    if (dtype_name == nullptr) return STRATA_ERROR(where, " has no string 'dtype'");
    if (!shape) {
        return STRATA_ERROR(where, " has no 'shape' of up to ", kDimensionsMax,
                            " integers of 0 or more");
    }
    if (!offsets || offsets->size() != 2) {
        return STRATA_ERROR(where, " has no 'data_offsets' of two integers of 0 or more");
    }
    const std::uint64_t begin = (*offsets)[0];
    const std::uint64_t end = (*offsets)[1];
    if (begin > end || end > data.size()) {
        return STRATA_ERROR(where, " has the data offsets ", begin, " to ", end,
                            ", and the file has ", data.size(), " bytes of data");
    }
    Tensor tensor;
    const auto elements = product(*shape);
    if (!elements) {
        return STRATA_ERROR(where, " of shape ", shape_text(*shape),
                            " has more values than 63 bits can count");
    }
    if (const DtypeInfo* dtype = find_dtype(*dtype_name)) {
        tensor.dtype = dtype->dtype;
        if (checked_mul(*elements, dtype->bytes) != end - begin) {
            return STRATA_ERROR(where, " of shape ", shape_text(*shape), " and type ", *dtype_name,
                                " has ", end - begin, " bytes, wanted ", dtype->bytes, " a value");
        }
    }
    tensor.name = name;
    tensor.dtype_name = *dtype_name;
    tensor.shape = *shape;
    tensor.data = data.subspan(begin, end - begin);
    return tensor;
}

// Error: bytes of `data` that no tensor has, or that two have. A header whose length is off by some
// bytes shifts all data, and is seen only here.
Status check_layout(const std::string& path, const std::vector<Tensor>& tensors,
                    std::span<const std::byte> data) {
    std::vector<const Tensor*> in_order;
    for (const Tensor& tensor : tensors) in_order.push_back(&tensor);
    std::stable_sort(in_order.begin(), in_order.end(), [](const Tensor* a, const Tensor* b) {
        const auto key = [](const Tensor& t) { return std::pair(t.data.data(), t.data.size()); };
        return key(*a) < key(*b);
    });
    std::uint64_t end = 0;
    for (const Tensor* tensor : in_order) {
        const auto begin = static_cast<std::uint64_t>(tensor->data.data() - data.data());
        if (begin != end) {
            return STRATA_ERROR(quote(path), ": tensor ", quote(tensor->name), " begins at byte ",
                                begin, " of the data, wanted ", end, ", where the one before ends");
        }
        end += tensor->data.size();
    }
    if (end == data.size()) return Ok{};
    return STRATA_ERROR(quote(path), " has ", data.size(),
                        " bytes of data, and its tensors end at ", end);
}

}  // namespace

Result<std::vector<Tensor>> parse_file(const std::string& path, std::span<const std::byte> bytes) {
    std::uint64_t length = 0;
    if (bytes.size() < kLengthBytes) {
        return STRATA_ERROR(quote(path), " is no safetensors file: it has ", bytes.size(),
                            " bytes, wanted ", kLengthBytes, " and a header");
    }
    std::memcpy(&length, bytes.data(), kLengthBytes);
    if (length > kHeaderBytesMax || length > bytes.size() - kLengthBytes) {
        return STRATA_ERROR(quote(path), " is truncated or no safetensors file: it declares a ",
                            "header of ", length, " bytes, the file has ", bytes.size(),
                            ", the limit is ", kHeaderBytesMax);
    }
    const auto header = bytes.subspan(kLengthBytes, length);
    STRATA_ASSIGN(const json root,
                  parse_json({reinterpret_cast<const char*>(header.data()), header.size()}, path));
    if (!root.is_object()) {
        return STRATA_ERROR("the header of ", quote(path), " is not a JSON object");
    }
    const auto data = bytes.subspan(kLengthBytes + length);
    std::vector<Tensor> tensors;
    for (const auto& [name, entry] : root.items()) {
        if (name == "__metadata__") continue;
        STRATA_ASSIGN(Tensor tensor, read_tensor(path, name, entry, data));
        tensors.push_back(std::move(tensor));
    }
    STRATA_TRY(check_layout(path, tensors, data));
    return tensors;
}

}  // namespace strata::safetensors
