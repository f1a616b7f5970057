// The parts of a block draft's layers that lie in files of their own.
#pragma once

#include "backend/cuda/draft_rows.h"
#include "backend/cuda/queue.h"
#include "op/dflash_block.h"

namespace strata::cuda {

// The rows of a block, as projected.
struct DflashRows {
    MatrixView<float> query;  // [B, H*d]
    MatrixView<float> key;    // [B, G*d]
    MatrixView<float> value;  // [B, G*d]
};

// What one call passes from step to step; rows are the block's.
struct DflashSteps {
    op::DflashBlock args;
    MatrixView<float> hidden;   // h
    MatrixView<float> squares;  // sums of the squares of kDflashSquares columns of h each
    MatrixView<float> after;    // what a sublayer gives
    MatrixView<float> delta;
};
inline constexpr int kDflashSquares = 256;

// h = the embeddings.
void dflash_begin(Queue& queue, const DflashSteps& steps);

// Runs the products of C(0, a) and leaves the deltas of side 1.
void dflash_enter(Queue& queue, const DflashSteps& steps, op::Gain norm, const op::DflashConv& conv,
                  std::span<const Product> products);

// Whether enter_at_once() has the shape.
bool enters_at_once(const Queue& queue, const DflashSteps& steps, op::Gain norm,
                    const op::DflashConv& conv, const DraftRows& to);
// What comes before the products of dflash_enter(), in one kernel: to = C(0, a), which they read.
void enter_at_once(Queue& queue, const DflashSteps& steps, op::Gain norm,
                   const op::DflashConv& conv, std::span<const Product> products,
                   const DraftRows& to);

// to[i] = concat over h of o_h: each row, its queries and keys normed and turned, over the cells
// and block rows that it sees.
void dflash_attend(Queue& queue, const op::DflashBlock& args, const op::DflashLayer& layer,
                   const DflashRows& rows, const DraftRows& to);

// h += C(1, after).
void dflash_leave(Queue& queue, const DflashSteps& steps, const op::DflashConv& conv);

// to = the norm of h.
void dflash_norm(Queue& queue, const DflashSteps& steps, op::Gain norm, MatrixView<float> to);

}  // namespace strata::cuda
