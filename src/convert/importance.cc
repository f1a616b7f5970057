#include "convert/importance.h"

#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace strata::convert {
namespace {

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";

Result<std::vector<float>> floats_of(const gguf::File& file, const gguf::Tensor& tensor) {
    if (tensor.type != quant::Type::f32) {
        return STRATA_ERROR(quote(file.path()), ": tensor ", quote(tensor.name), " is of type ",
                            quant::info(tensor.type).name, ", wanted F32");
    }
    std::vector<float> values(tensor.elements());
    std::memcpy(values.data(), tensor.data.data(), values.size() * sizeof(float));
    for (const float value : values) {
        if (std::isfinite(value) && value >= 0) continue;
        return STRATA_ERROR(quote(file.path()), ": tensor ", quote(tensor.name), " has the value ",
                            value, ", wanted 0 or more");
    }
    return values;
}

}  // namespace

Status ImportanceFile::add(const gguf::File& file, const gguf::Tensor& sums,
                           const std::string& name) {
    STRATA_ASSIGN(const gguf::Tensor* found, gguf::require_tensor(file, concat(name, kCounts)));
    STRATA_ASSIGN(const std::vector<float> squares, floats_of(file, sums));
    STRATA_ASSIGN(const std::vector<float> counts, floats_of(file, *found));
    const std::uint64_t width = sums.shape[0];
    if (counts.size() != squares.size() / width) {
        return STRATA_ERROR(quote(file.path()), ": tensor ", quote(found->name), " has ",
                            counts.size(), " values, wanted ", squares.size() / width,
                            ", one for each row of ", quote(sums.name));
    }
    Parts parts{width, {}};
    for (std::size_t p = 0; p < counts.size(); ++p) {
        std::vector<float>& mean = parts.means.emplace_back();
        if (counts[p] == 0) continue;
        const auto first = squares.begin() + static_cast<std::ptrdiff_t>(p * width);
        mean.assign(first, first + static_cast<std::ptrdiff_t>(width));
        for (float& value : mean) value /= counts[p];
    }
    parts_.emplace(name, std::move(parts));
    return Ok{};
}

Result<ImportanceFile> ImportanceFile::open(const std::string& path) {
    STRATA_ASSIGN(const gguf::File file, gguf::File::open(path));
    ImportanceFile out;
    out.path_ = path;
    for (const gguf::Tensor& tensor : file.tensors()) {
        if (!tensor.name.ends_with(kSums)) continue;
        const std::string name = tensor.name.substr(0, tensor.name.size() - kSums.size());
        STRATA_TRY(out.add(file, tensor, name));
    }
    if (out.parts_.empty()) {
        return STRATA_ERROR(quote(path), " holds no importance: wanted tensors named NAME", kSums,
                            " and NAME", kCounts);
    }
    return out;
}

std::span<const float> ImportanceFile::row(const gguf::Tensor& tensor, std::uint64_t row) const {
    const auto found = parts_.find(tensor.name);
    if (found == parts_.end()) return {};
    const auto& means = found->second.means;
    const std::uint64_t rows = tensor.elements() / tensor.shape[0];
    return means[row / (rows / means.size())];
}

Status ImportanceFile::check(const gguf::Tensor& tensor) const {
    const auto found = parts_.find(tensor.name);
    if (found == parts_.end()) return Ok{};
    const std::size_t parts = found->second.means.size();
    if (found->second.width == tensor.shape[0] && (parts == 1 || parts == tensor.dimension(2))) {
        return Ok{};
    }
    return STRATA_ERROR(quote(path_), " is of another model: tensor ", quote(tensor.name),
                        " has rows of ", tensor.shape[0], " values in ", tensor.dimension(2),
                        " matrices, and the importance is of ", found->second.width, " in ", parts);
}

}  // namespace strata::convert
