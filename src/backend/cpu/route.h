// Which rows go to which experts.
#pragma once

#include <cstdint>

#include "backend/cpu/queue.h"
#include "device/tensor.h"
#include "op/experts.h"

namespace strata::cpu {

// The k largest logits of a row, largest first, equal ones by the lower expert, NaN after all
// numbers; and their share: the softmax over all experts, divided by its sum over the k where
// `renormalize`.
void choose_experts(const float* logits, std::int64_t experts, int k, bool renormalize,
                    std::int32_t* chosen, float* share);

// The chosen (row, slot) pairs of a call in order of expert, then row.
struct Groups {
    std::int64_t used = 0;           // experts with at least one row
    std::int32_t* expert = nullptr;  // [used]
    std::int32_t* first = nullptr;   // [used + 1]: where each one's members start
    std::int32_t* row = nullptr;     // [T*k]: the row of each member
    std::int32_t* place = nullptr;   // [T*k]: the member that row t's slot s became, at t*k + s
    std::int32_t* net = nullptr;     // [T*k]: which of the used experts each member is of
};

// Fills groups whose arrays hold min(E, T*k) + 1 and T*k; `counts` is scratch of E + 1.
void group_rows(MatrixView<const std::int32_t> chosen, std::int64_t experts, std::int32_t* counts,
                Groups& groups);

// What routing gives for T rows.
struct Routed {
    MatrixView<std::int32_t> chosen;  // [T, k]
    MatrixView<float> share;          // [T, k]
    MatrixView<float> scale;          // [T, 1]: the shared expert's share

    Routed rows_from(std::int64_t first, std::int64_t count) const {
        return {chosen.rows_from(first, count), share.rows_from(first, count),
                scale.rows_from(first, count)};
    }
};

// Fills `to`, which has the rows of args.x, as op/experts.h says.
void route_rows(const op::Experts& args, Queue& queue, const Routed& to);

}  // namespace strata::cpu
