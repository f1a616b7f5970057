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

// to[i] = concat over h of o_h: each row, its queries and keys normed and turned, over the cells
// and block rows that it sees.
void dflash_attend(Queue& queue, const op::DflashBlock& args, const op::DflashLayer& layer,
                   const DflashRows& rows, const DraftRows& to);

}  // namespace strata::cuda
