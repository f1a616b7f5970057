// How much each column of a matrix matters: the mean of its squared inputs on some text, as
// llama.cpp's imatrix files (GGUF) and gather_importance write it:
//   general.type   "imatrix"
//   NAME.in_sum2   F32 [width, parts]: sums of squared inputs of the tensor NAME, by column; a part
//                  is the whole tensor, or one expert's matrix
//   NAME.counts    F32 [1, parts]: how many inputs
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "gguf/reader.h"

namespace strata::convert {

class ImportanceFile {
  public:
    // Errors: no such file, no importance in it, sums or counts that are missing, misshapen,
    // negative or not finite.
    static Result<ImportanceFile> open(const std::string& path);

    std::int64_t tensors() const { return static_cast<std::int64_t>(parts_.size()); }

    // Of row `row` of the tensor: one value a column, in no unit. Empty where nothing is known: the
    // tensor is not named, or the row is of an expert that met no input.
    std::span<const float> row(const gguf::Tensor& tensor, std::uint64_t row) const;

    // Error: the file speaks of `tensor` in another width or another number of experts.
    Status check(const gguf::Tensor& tensor) const;

  private:
    struct Parts {
        std::uint64_t width = 0;
        std::vector<std::vector<float>> means;  // of each part; empty: it met no input
    };
    Status add(const gguf::File& file, const gguf::Tensor& sums, const std::string& name);

    std::string path_;
    std::unordered_map<std::string, Parts> parts_;
};

}  // namespace strata::convert
