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
    split,    // each value as the sum of two of BF16, the second what is missing of the first
};

struct DraftRows {
    RowForm form = RowForm::plain;
    int rows = 0;
    int cols = 0;
    int group = 0;      // of rounded ones
    int rows_most = 0;  // split ones that lie together
    std::byte* data = nullptr;
};

// Rows of split values lie in pieces of 8 columns, those of 32 columns together: of every row the
// first values, then of every row what is missing of them.
inline constexpr int kSplitColumns = 32;
inline constexpr int kSplitPiece = 8;

constexpr std::int64_t split_bytes(std::int64_t rows, std::int64_t cols) { return rows * cols * 4; }

// Memory of the queue for rows that all the products read.
DraftRows make_draft_rows(Queue& queue, std::int64_t rows, std::int64_t cols,
                          std::span<const Product> products);

// out[t] = weight . x[t] for every product, as project() does it but for the order of the sums of
// split rows. Rows of `out` depend on the rows of x alone, bit for bit, whatever the others are.
void project_draft(Queue& queue, const DraftRows& x, std::span<const Product> products);

}  // namespace strata::cuda
