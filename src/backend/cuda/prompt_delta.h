// The recurrence of the gated delta net over the rows of a prompt.
#pragma once

#include "backend/cuda/queue.h"
#include "op/delta_net.h"

namespace strata::cuda::prompt {

inline constexpr int kGates = 4;

// What the recurrence reads of T rows, and what it leaves.
struct DeltaRows {
    MatrixView<const float> units;   // [T, 2, Hk, dk]: q^ and k^
    MatrixView<const float> values;  // [T, Hv * dv], rows `value_stride` apart
    std::int64_t value_stride = 0;
    MatrixView<const float> gates;  // [T, Hv, kGates]: alpha, beta, q^ . k^, log alpha
    MatrixView<float> out;          // [T, Hv * dv]
};

// Key and value widths that the recurrence has kernels for.
bool runs_delta(const op::DeltaShape& shape);

// Takes the memories of all heads from `from` to `to` through all rows: one after another, or
// op::kDeltaChunk at a time, the first with the first row.
void run_delta_chunks(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows);
void run_delta(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows);

}  // namespace strata::cuda::prompt
