// Bounded by the loads of the first two cache levels, or by the arithmetic of exp.
#include "backend/cpu/pointwise.h"

#include <algorithm>
#include <limits>

namespace strata::cpu {
namespace {

struct RmsNorm {
    template <typename V>
    STRATA_INLINE static void run(const float* x, const float* gain, std::int64_t n, float epsilon,
                                  float* out) {
        const float mean = sum_squares<V>(x, n) / static_cast<float>(n);
        const float scale = 1.0f / std::sqrt(mean + epsilon);
#pragma GCC ivdep
        for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * gain[i];
    }
};

struct SiluRow {
    template <typename V>
    STRATA_INLINE static void run(float* x, std::int64_t n, float scale) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < n; ++i) x[i] = silu(x[i] * scale);
    }
};

struct GateRow {
    template <typename V>
    STRATA_INLINE static void run(float* x, const float* gate, std::int64_t n, float scale) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < n; ++i) x[i] *= scale * sigmoid(gate[i]);
    }
};

struct SiluProduct {
    template <typename V>
    STRATA_INLINE static void run(float* x, const float* factor, std::int64_t n) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < n; ++i) x[i] = silu(x[i]) * factor[i];
    }
};

struct SoftmaxWeights {
    template <typename V>
    STRATA_INLINE static void run(float* x, std::int64_t n, float scale, float* inverse_sum) {
        const std::int64_t whole = n / kLanes * kLanes;
        const float largest = scale_all<V>(x, n, scale);
        float lane[kLanes] = {};
        for (std::int64_t i = 0; i < whole; i += kLanes) {
            for (int j = 0; j < kLanes; ++j) {
                x[i + j] = exponential(x[i + j] - largest);
                lane[j] += x[i + j];
            }
        }
        for (std::int64_t i = whole; i < n; ++i) {
            x[i] = exponential(x[i] - largest);
            lane[i - whole] += x[i];
        }
        *inverse_sum = 1.0f / sum_lanes(lane);
    }

    // x *= scale; the largest of them.
    template <typename V>
    STRATA_INLINE static float scale_all(float* x, std::int64_t n, float scale) {
        constexpr std::int64_t kWidth = kVectorWidth<V>;
        V most = V{} - std::numeric_limits<float>::infinity();
        std::int64_t i = 0;
        for (; i + kWidth <= n; i += kWidth) {
            V value;
            load_vector(x + i, value);
            value *= scale;
            store_vector(value, x + i);
            most = value > most ? value : most;
        }
        float lane[kWidth];
        store_vector(most, lane);
        for (; i < n; ++i) {
            x[i] *= scale;
            lane[0] = x[i] > lane[0] ? x[i] : lane[0];
        }
        return *std::max_element(lane, lane + kWidth);
    }
};

struct ConvolveSilu {
    template <typename V>
    STRATA_INLINE static void run(const float* const* rows, int taps, const float* weight,
                                  std::int64_t begin, std::int64_t end, float* out) {
        constexpr int kCommon = 4;
        if (taps == kCommon) {
            const float* const a = rows[0];
            const float* const b = rows[1];
            const float* const c = rows[2];
            const float* const d = rows[3];
#pragma GCC ivdep
            for (std::int64_t i = begin; i < end; ++i) {
                const float* w = weight + i * kCommon;
                out[i] = silu(w[0] * a[i] + w[1] * b[i] + w[2] * c[i] + w[3] * d[i]);
            }
            return;
        }
        for (std::int64_t i = begin; i < end; ++i) {
            float sum = 0.0f;
            for (int j = 0; j < taps; ++j) sum += weight[i * taps + j] * rows[j][i];
            out[i] = silu(sum);
        }
    }
};

}  // namespace

void rms_norm(Instructions instructions, const float* x, const float* gain, std::int64_t n,
              float epsilon, float* out) {
    run_kernel<RmsNorm>(instructions, x, gain, n, epsilon, out);
}

void silu_row(Instructions instructions, float* x, std::int64_t n, float scale) {
    run_kernel<SiluRow>(instructions, x, n, scale);
}

void gate_row(Instructions instructions, float* x, const float* gate, std::int64_t n, float scale) {
    run_kernel<GateRow>(instructions, x, gate, n, scale);
}

void silu_product(Instructions instructions, float* x, const float* factor, std::int64_t n) {
    run_kernel<SiluProduct>(instructions, x, factor, n);
}

float softmax_weights(Instructions instructions, float* x, std::int64_t n, float scale) {
    float inverse_sum = 0;
    run_kernel<SoftmaxWeights>(instructions, x, n, scale, &inverse_sum);
    return inverse_sum;
}

void convolve_silu(Instructions instructions, const float* const* rows, int taps,
                   const float* weight, std::int64_t begin, std::int64_t end, float* out) {
    run_kernel<ConvolveSilu>(instructions, rows, taps, weight, begin, end, out);
}

}  // namespace strata::cpu
