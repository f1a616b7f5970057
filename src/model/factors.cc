#include "model/factors.h"

#include <cstring>
#include <string>
#include <string_view>

#include "base/text.h"

namespace strata::model {
namespace {

constexpr std::string_view kMatrix = ".weight";
constexpr std::string_view kFactors = ".scale";
constexpr std::string_view kInputFactors = ".input_scale";

const gguf::Tensor* find_factors(const gguf::File& file, const gguf::Tensor& matrix) {
    if (!matrix.name.ends_with(kMatrix)) return nullptr;
    const std::string stem = matrix.name.substr(0, matrix.name.size() - kMatrix.size());
    return file.find_tensor(concat(stem, kFactors));
}

}  // namespace

Result<std::vector<float>> factors_of(const gguf::File& file, const gguf::Tensor& matrix) {
    const gguf::Tensor* found = find_factors(file, matrix);
    if (found == nullptr) return std::vector<float>{};
    if (matrix.type != quant::Type::nvfp4) {
        return STRATA_ERROR(quote(file.path()), ": tensor ", quote(found->name), " is to multiply ",
                            quote(matrix.name), " of type ", quant::info(matrix.type).name,
                            ", wanted one of type NVFP4, which alone has such factors");
    }
    const std::uint64_t wanted = matrix.shape.size() > 2 ? matrix.shape[2] : 1;
    if (found->type != quant::Type::f32 || found->elements() != wanted) {
        return STRATA_ERROR(quote(file.path()), ": tensor ", quote(found->name), " has ",
                            found->elements(), " values of type ", quant::info(found->type).name,
                            ", wanted ", wanted, " of F32, one for each matrix of ",
                            quote(matrix.name));
    }
    std::vector<float> factors(wanted);
    std::memcpy(factors.data(), found->data.data(), found->data.size());
    return factors;
}

const gguf::Tensor* matrix_of_factors(const gguf::File& file, const gguf::Tensor& factors) {
    for (const std::string_view suffix : {kInputFactors, kFactors}) {
        if (!factors.name.ends_with(suffix)) continue;
        const std::string stem = factors.name.substr(0, factors.name.size() - suffix.size());
        return file.find_tensor(concat(stem, kMatrix));
    }
    return nullptr;
}

Status refuse_factors(const gguf::File& file, const gguf::Tensor& tensor) {
    const gguf::Tensor* found = find_factors(file, tensor);
    if (found == nullptr) return Ok{};
    return STRATA_ERROR(quote(file.path()), ": tensor ", quote(found->name), " is to multiply ",
                        quote(tensor.name), ", whose values are read as they are, wanted none");
}

}  // namespace strata::model
