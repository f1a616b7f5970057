// The parts of sparse attention, in the order in which a call goes through them.
#pragma once

#include <cstdint>

#include "backend/cpu/queue.h"
#include "op/sparse_attention.h"

namespace strata::cpu {

// The queries of T rows.
struct SparseQueries {
    MatrixView<float> query;  // [T, H*2d]: each head's query, normed and turned, then its gate
    MatrixView<float> index_query;  // [T, HI*di], normed and turned
};

// The blocks that rows attend to. A row with no more than B complete blocks has no list: it sees
// all.
struct Selection {
    std::int64_t first_row = 0;       // rows before it have no list
    MatrixView<std::int32_t> blocks;  // [T - first_row, B], ascending
    bool dense(std::int64_t t) const { return t < first_row; }
};

// Complete blocks that the row at position p sees.
inline std::int64_t visible_blocks(std::int64_t p, int ratio) { return (p + 1) / ratio; }

// Scores the visible blocks of every row that has more than B, and keeps the best.
Selection select_blocks(const op::SparseAttention& args, Queue& queue,
                        const SparseQueries& queries);

// out[t] = concat over h of o_h * sigmoid(gate_h).
void attend(const op::SparseAttention& args, Queue& queue, const SparseQueries& queries,
            const Selection& selection, MatrixView<float> out);

}  // namespace strata::cpu
