// Values of a checkpoint's tensors.
#include <cstring>
#include <optional>

#include "base/text.h"
#include "quant/type.h"
#include "safetensors/checkpoint.h"

namespace strata::safetensors {
namespace {

std::optional<quant::Type> float_type(Dtype dtype) {
    switch (dtype) {
        case Dtype::f32:
            return quant::Type::f32;
        case Dtype::f16:
            return quant::Type::f16;
        case Dtype::bf16:
            return quant::Type::bf16;
        default:
            return std::nullopt;
    }
}

}  // namespace

std::uint64_t Tensor::elements() const {
    std::uint64_t product = 1;
    for (const std::uint64_t size : shape) product *= size;
    return product;
}

Status read_floats(const Tensor& tensor, std::uint64_t first, std::span<float> out) {
    const auto type = float_type(tensor.dtype);
    if (!type) {
        return STRATA_ERROR("tensor ", quote(tensor.name), " is of type ", quote(tensor.dtype_name),
                            ", wanted F32, F16 or BF16");
    }
    const std::uint64_t elements = tensor.elements();
    if (first > elements || out.size() > elements - first) {
        return STRATA_ERROR("tensor ", quote(tensor.name), " has ", elements, " values, wanted ",
                            out.size(), " from ", first);
    }
    const quant::TypeInfo& format = quant::info(*type);
    const auto at = tensor.data.subspan(first * static_cast<std::uint64_t>(format.block_bytes));
    format.decode(at.data(), out.data(), static_cast<std::int64_t>(out.size()));
    return Ok{};
}

Result<std::vector<std::int64_t>> read_ints(const Tensor& tensor) {
    if (tensor.dtype != Dtype::i64) {
        return STRATA_ERROR("tensor ", quote(tensor.name), " is of type ", quote(tensor.dtype_name),
                            ", wanted I64");
    }
    std::vector<std::int64_t> numbers(tensor.elements());
    if (!numbers.empty()) std::memcpy(numbers.data(), tensor.data.data(), tensor.data.size());
    return numbers;
}

}  // namespace strata::safetensors
