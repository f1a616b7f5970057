// How the values of one GGUF tensor are made of a checkpoint's, a few rows at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/tensors.h"
#include "safetensors/checkpoint.h"

namespace strata::convert {

// Rows of a tensor of the checkpoint, seen as a matrix with rows of Band::source_width values.
struct RowRange {
    const safetensors::Tensor* tensor = nullptr;
    std::uint64_t first_row = 0;
    std::uint64_t rows = 0;
};

// A band of columns of the result: columns [first_column, first_column + columns) of the ranges'
// rows, one range below the other.
struct Band {
    std::vector<RowRange> ranges;
    std::uint64_t source_width = 0;
    std::uint64_t first_column = 0;
    std::uint64_t columns = 0;
};

// What happens to every value: x, 1 + x, or -exp(x).
enum class ValueMap : std::uint8_t { copy, plus_one, minus_exp };

// The bands stand side by side; each has all rows of the result, and their columns add up to
// spec.shape[0]. Points into the checkpoint.
struct Recipe {
    model::TensorSpec spec;
    std::vector<Band> bands;
    ValueMap map = ValueMap::copy;

    std::uint64_t width() const { return spec.shape[0]; }
    std::uint64_t rows() const;
};

// Rows [first, first + out.size() / width()) of the result. Errors: a value that is not finite.
Status read_rows(const Recipe& recipe, std::uint64_t first, std::span<float> out);

}  // namespace strata::convert
