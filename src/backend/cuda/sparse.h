// The parts of sparse attention, in the order in which a call goes through them.
#pragma once

#include <cstdint>

#include "backend/cuda/queue.h"
#include "op/sparse_attention.h"

namespace strata::cuda {

// What goes from part to part for T rows.
struct SparseRows {
    op::SparseAttention args;
    MatrixView<float> query;  // [T, H*2d]: each head's query, normed and turned, then its gate
    MatrixView<float> index_query;   // [T, HI*di], normed and turned
    MatrixView<float> key;           // [T, G*d], as projected; as the next two
    MatrixView<float> value;         // [T, G*d]
    MatrixView<float> raw;           // [T, di]
    std::int32_t* chosen = nullptr;  // [T, B]: blocks, ascending, of the rows that see more than B
    MatrixView<float> attended;      // [T, H*d]
    float* scores = nullptr;         // scratch of select_blocks
    float* partial = nullptr;        // scratch of attend
};

// Rows whose scores and sums are held at a time.
inline constexpr std::int64_t kSparseRows = 16;

// Values of scratch for kSparseRows rows, or as many as there are.
std::int64_t select_scratch(const op::SparseAttention& args);
std::int64_t attend_scratch(const op::SparseAttention& args);

// Norms, turns, block keys and what goes to the cache and the history, of projected rows.
void finish_rows(Queue& queue, const SparseRows& rows);

// Scores the blocks that rows first .. first+count-1 see, and writes those that each keeps to
// `chosen`. count <= kSparseRows.
void select_blocks(Queue& queue, const SparseRows& rows, std::int64_t first, std::int64_t count);

// The second half of it: `scores` holds, of each of the rows, those of context / ratio blocks.
void choose_blocks(Queue& queue, const SparseRows& rows, std::int64_t first, std::int64_t count);

// attended = concat over h of o_h * sigmoid(gate_h), of the same rows.
void attend(Queue& queue, const SparseRows& rows, std::int64_t first, std::int64_t count);

}  // namespace strata::cuda
