// The pieces of the gated delta net that work on one value head.
#pragma once

#include <cstdint>

#include "backend/cpu/instructions.h"
#include "device/tensor.h"
#include "op/delta_net.h"

namespace strata::cpu {

// What the recurrence reads, for all heads.
struct DeltaInputs {
    MatrixView<const float> convolved;  // [T, C]
    MatrixView<const float> units;      // [T, 2*Hk*dk]: q^, then k^, of every key head
    MatrixView<const float> beta;       // [T, Hv]
    MatrixView<const float> decay;      // [T, Hv]: alpha
    MatrixView<const float> log_decay;  // [T, Hv]; the chunked form alone reads it
    op::DeltaShape shape;
    op::HeadOrder order = op::HeadOrder::tiled;

    std::int64_t unit_width() const { return std::int64_t{2} * shape.key_heads * shape.key_dim; }
};

// One value head's way through `rows` rows.
struct DeltaHead {
    int h = 0;
    std::int64_t rows = 0;
    const float* from = nullptr;  // memory [dk, dv] before
    float* to = nullptr;          // and after; disjoint from it or the same
    MatrixView<float> out;        // [T, Hv*dv]: gets o of this head; empty: o is not computed
};

// The key head of value head h.
int key_head(const op::DeltaShape& shape, op::HeadOrder order, int h);

// Row t of DeltaInputs::units, from the row's convolved values.
void make_units(const DeltaInputs& in, std::int64_t t, float* units);

// v of value head h in row t.
const float* value_head(const DeltaInputs& in, std::int64_t t, int h);

// One row after another. The memory ends with the same bits with `out` and without.
void run_recurrent(Instructions instructions, const DeltaInputs& in, const DeltaHead& head);

// The same kDeltaChunk rows at a time; `scratch` holds chunked_scratch values.
void run_chunked(const DeltaInputs& in, const DeltaHead& head, float* scratch);
std::int64_t chunked_scratch(const op::DeltaShape& shape);

}  // namespace strata::cpu
