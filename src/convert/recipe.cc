#include "convert/recipe.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/text.h"

namespace strata::convert {
namespace {

// One band of `rows` result rows from `first` on, written every `stride` values from `out` on.
Status read_band(const Band& band, std::uint64_t first, std::uint64_t rows, std::uint64_t stride,
                 float* out) {
    std::uint64_t skipped = 0;
    for (const RowRange& range : band.ranges) {
        const std::uint64_t begin = std::max(first, skipped);
        const std::uint64_t end = std::min(first + rows, skipped + range.rows);
        for (std::uint64_t row = begin; row < end;) {
            const bool whole = band.columns == band.source_width && band.columns == stride;
            const std::uint64_t run = whole ? end - row : 1;
            const std::uint64_t source_row = range.first_row + (row - skipped);
            float* to = out + (row - first) * stride;
            STRATA_TRY(safetensors::read_floats(*range.tensor,
                                                source_row * band.source_width + band.first_column,
                                                std::span<float>(to, run * band.columns)));
            row += run;
        }
        skipped += range.rows;
    }
    STRATA_CHECK(skipped >= first + rows);
    return Ok{};
}

}  // namespace

std::uint64_t Recipe::rows() const {
    std::uint64_t rows = 1;
    for (std::size_t i = 1; i < spec.shape.size(); ++i) rows *= spec.shape[i];
    return rows;
}

Status read_rows(const Recipe& recipe, std::uint64_t first, std::span<float> out) {
    const std::uint64_t width = recipe.width();
    const std::uint64_t rows = out.size() / width;
    std::uint64_t column = 0;
    for (const Band& band : recipe.bands) {
        STRATA_TRY(read_band(band, first, rows, width, out.data() + column));
        column += band.columns;
    }
    STRATA_CHECK(column == width);
    for (std::size_t i = 0; i < out.size(); ++i) {
        if (recipe.map == ValueMap::plus_one) out[i] += 1.0F;
        if (recipe.map == ValueMap::minus_exp) out[i] = -std::exp(out[i]);
        if (!std::isfinite(out[i])) {
            return STRATA_ERROR("tensor ", quote(recipe.bands[0].ranges[0].tensor->name),
                                " gives the value ", out[i], " in row ", first + i / width, " of ",
                                quote(recipe.spec.name), ", wanted finite values");
        }
    }
    return Ok{};
}

}  // namespace strata::convert
