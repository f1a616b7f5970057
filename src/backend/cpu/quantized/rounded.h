// Rows of F32 rounded to eight bits, as op/weight.h says, for products with weights of one type.
#pragma once

#include <bit>
#include <cstdint>

#include "backend/cpu/product.h"
#include "backend/cpu/quantized/panel.h"
#include "backend/cpu/queue.h"

namespace strata::cpu {

// `columns` / `group`, which is a power of two in every type: for a few rows a division takes as
// long as much of the rest.
constexpr std::int64_t groups_in(std::int64_t columns, int group) {
    return columns >> std::countr_zero(static_cast<unsigned>(group));
}

// All three arrays hold 32-bit items, some a row. In tiles, item i of the rows r .. r+w-1 of a tile
// lie side by side at r * items + i * w; in rows, item i of row r at r * items + i.
struct Rounded {
    const quant::IntegerForm* form = nullptr;
    std::int64_t rows = 0;
    std::int64_t cols = 0;          // whole blocks
    std::int32_t* codes = nullptr;  // four columns an item
    float* scales = nullptr;        // one a group of the form
    // One a part: the sum of its codes, times minus the form's offset where there is one. With
    // parts that have minima, one for two parts, a half each.
    std::int32_t* sums = nullptr;

    std::int64_t code_items() const { return cols / 4; }
    std::int64_t scale_items() const { return groups_in(cols, form->group); }
    int columns_a_sum() const { return form->part * (form->minima && form->has_parts() ? 2 : 1); }
    std::int64_t sum_items() const { return groups_in(cols, columns_a_sum()); }
};

// The tiles of one panel's columns, the first panel's to begin with.
class TilesAt {
  public:
    explicit TilesAt(const Rounded& rounded) : rounded_(rounded) {}

    void next_panel() {
        code_ += kPanelCols / 4;
        scale_ += scale_step_;
        sum_ += sum_step_;
    }

    Tile from(std::int64_t row) const {
        const int width = tile_rows(rounded_.rows - row);
        const std::int32_t* codes = rounded_.codes + row * code_items_ + code_ * width;
        return {.rows = width,
                .codes = reinterpret_cast<const std::int8_t*>(codes),
                .scales = rounded_.scales + row * scale_items_ + scale_ * width,
                .sums = rounded_.sums + row * sum_items_ + sum_ * width};
    }

  private:
    const Rounded& rounded_;
    std::int64_t code_ = 0;
    std::int64_t scale_ = 0;
    std::int64_t sum_ = 0;
    std::int64_t scale_step_ = groups_in(kPanelCols, rounded_.form->group);
    std::int64_t sum_step_ = groups_in(kPanelCols, rounded_.columns_a_sum());
    std::int64_t code_items_ = rounded_.code_items();
    std::int64_t scale_items_ = rounded_.scale_items();
    std::int64_t sum_items_ = rounded_.sum_items();
};

// One row, before it is rounded and where it goes, in rows; `n` values in whole groups.
struct RowParts {
    const float* x;
    std::int64_t n;
    bool transposed;
    std::int8_t* codes;
    float* scales;
    std::int32_t* sums;
};
void round_row_avx512(const quant::IntegerForm& form, const RowParts& row);

// Uninitialized, in memory of the queue.
Rounded take_rounded(Queue& queue, const quant::IntegerForm& form, std::int64_t rows,
                     std::int64_t cols);

// Fills row `row`, in rows, from `n` values that stand `before` columns from the first, zeros
// around them.
void round_row(const float* x, std::int64_t before, std::int64_t n, bool transposed,
               Instructions instructions, const Rounded& to, std::int64_t row);

// Rows at[0 .. to.rows-1] of `from`, or the first, from rows into tiles, as far as the tiles that
// start in [begin, end) go.
void make_tiles(const Rounded& from, const std::int32_t* at, const Rounded& to, std::int64_t begin,
                std::int64_t end);

// x rounded and in tiles for weights of the type from `first_column` on; the queue's threads share
// the work.
Rounded round_rows(Queue& queue, MatrixView<const float> x, std::int64_t first_column,
                   quant::Type type);

}  // namespace strata::cpu
