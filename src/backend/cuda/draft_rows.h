// Rows of a block draft on their way into products: what computes them writes them in the form that
// the products read.
#pragma once

#include <span>

#include "backend/cuda/project.h"

namespace strata::cuda {

// What the products of one x read.
enum class RowForm : std::uint8_t {
    plain,    // F32, row after row
    rounded,  // as op/weight.h says, in groups (operand.cuh)
    split,    // each value as the sum of three of BF16
};

struct DraftRows {
    RowForm form = RowForm::plain;
    int rows = 0;
    int cols = 0;
    int group = 0;      // of rounded ones
    int rows_most = 0;  // split ones that lie together
    std::byte* data = nullptr;

    // What plain ones are.
    MatrixView<const float> plain() const {
        return {reinterpret_cast<const float*>(data), rows, cols};
    }
};

// The values of split rows are the nearest, what that is short of, and what that again is short of:
// of F32 nothing is left. They lie in pieces of 8 columns, those of 32 columns together: of every
// row the first values, then the second ones, then the third.
inline constexpr int kSplitValues = 3;
inline constexpr int kSplitColumns = 32;
inline constexpr int kSplitPiece = 8;

constexpr std::int64_t split_bytes(std::int64_t rows, std::int64_t cols) {
    return rows * cols * kSplitValues * 2;
}

// Memory of the queue for rows as they are.
DraftRows make_plain_rows(Queue& queue, std::int64_t rows, std::int64_t cols);

// Memory of the queue for rows that all the products read.
DraftRows make_draft_rows(Queue& queue, std::int64_t rows, std::int64_t cols,
                          std::span<const Product> products);

// out[t] = weight . x[t] for every product, as project() does it but for the order of the sums of
// split rows. Rows of `out` depend on the rows of x alone, bit for bit, whatever the others are.
void project_draft(Queue& queue, const DraftRows& x, std::span<const Product> products);

}  // namespace strata::cuda
