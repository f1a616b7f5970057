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

// Values panel by panel, of which one begins `apart` after the one before.
struct Panels {
    const float* data = nullptr;
    std::int64_t apart = 0;
};

// y[j] = the sum of share[s] * parts[s][j] over the k parts, then last_share * last[j]; j < count.
struct AddParts {
    template <typename V>
    STRATA_INLINE static void run(const Panels* parts, const float* share, std::int64_t k,
                                  Panels last, float last_share, std::int64_t count, float* y) {
        constexpr int kParts = kPanelRows / kVectorWidth<V>;
        for (std::int64_t i = 0; i < count; i += kPanelRows) {
            V sum[kParts] = {};
            const std::int64_t panel = i / kPanelRows;
            for (std::int64_t s = 0; s < k; ++s) add(parts[s], panel, share[s], sum);
            add(last, panel, last_share, sum);
            float values[kPanelRows];
            std::memcpy(values, sum, sizeof(values));
            std::copy_n(values, std::min<std::int64_t>(kPanelRows, count - i), y + i);
        }
    }

  private:
    template <typename V, int kParts>
    STRATA_INLINE static void add(const Panels& part, std::int64_t panel, float share,
                                  V (&sum)[kParts]) {
#pragma GCC unroll 4
        for (int v = 0; v < kParts; ++v) {
            V own;
            load_vector(part.data + panel * part.apart + v * kVectorWidth<V>, own);
            sum[v] += share * own;
        }
    }
};

}  // namespace strata::cpu
