// The pieces of the gated delta net that work on one value head.
#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "op/delta_net.h"

namespace strata::cpu {

// What the recurrence reads, for all heads.
struct DeltaInputs {
    MatrixView<const float> convolved;  // [T, C]
    MatrixView<const float> beta;       // [T, Hv]
    MatrixView<const float> decay;      // [T, Hv]: alpha
    MatrixView<const float> log_decay;  // [T, Hv]; the chunked form alone reads it
    op::DeltaShape shape;
    op::HeadOrder order = op::HeadOrder::tiled;
};

// The key head of value head h.
int key_head(const op::DeltaShape& shape, op::HeadOrder order, int h);

// q^ and k^ of value head h in row t, dk values each; q may be null.
void unit_heads(const DeltaInputs& in, std::int64_t t, int h, float* q, float* k);

// v of value head h in row t.
const float* value_head(const DeltaInputs& in, std::int64_t t, int h);

// Values of scratch that the functions below need for one head.
std::int64_t recurrent_scratch(const op::DeltaShape& shape);
std::int64_t chunked_scratch(const op::DeltaShape& shape);

// Takes memory [dk, dv] of value head h through the first `rows` rows, one after another. Row t of
// `out` [T, Hv*dv] gets o of this head; where `out` is empty, o is not computed and the memory ends
// with the same bits.
void run_recurrent(const DeltaInputs& in, int h, std::int64_t rows, float* memory,
                   MatrixView<float> out, float* scratch);

// The same kDeltaChunk rows at a time.
void run_chunked(const DeltaInputs& in, int h, std::int64_t rows, float* memory,
                 MatrixView<float> out, float* scratch);

}  // namespace strata::cpu
