// Passes over the panels of sums that the experts' products give.
#pragma once

#include <algorithm>
#include <cstring>

#include "backend/cpu/pointwise.h"
#include "backend/cpu/quantized/panel.h"
#include "backend/cpu/vector.h"

namespace strata::cpu {

// One panel of the hidden values of `rows` rows, `stride` apart; `own` of the panel are wanted.
struct GatePanel {
    template <typename V>
    STRATA_INLINE static void run(const float* gates, const float* ups, std::int64_t rows,
                                  std::int64_t own, float* hidden, std::int64_t stride) {
        for (std::int64_t m = 0; m < rows; ++m) {
            float values[kPanelRows];
#pragma GCC ivdep
            for (int j = 0; j < kPanelRows; ++j) {
                values[j] = silu(gates[m * kPanelRows + j]) * ups[m * kPanelRows + j];
            }
            float* to = hidden + m * stride;
            if (own == kPanelRows) {
                std::memcpy(to, values, sizeof(values));
            } else {
                std::copy_n(values, own, to);
            }
        }
    }
};

// y[j] = the sum of share[s] * parts[s][j] over the k parts, then last_share * last[j].
struct AddParts {
    template <typename V>
    STRATA_INLINE static void run(const float* const* parts, const float* share, std::int64_t k,
                                  const float* last, float last_share, float* y) {
        float sum[kPanelRows] = {};
        for (std::int64_t s = 0; s < k; ++s) {
#pragma GCC ivdep
            for (int j = 0; j < kPanelRows; ++j) sum[j] += share[s] * parts[s][j];
        }
#pragma GCC ivdep
        for (int j = 0; j < kPanelRows; ++j) y[j] = sum[j] + last_share * last[j];
    }
};

}  // namespace strata::cpu
