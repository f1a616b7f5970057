// Norms over rows and heads, and rotary positions.
#pragma once

#include <algorithm>
#include <cmath>

#include "backend/cuda/intrinsics.cuh"
#include "op/weight.h"

namespace strata::cuda {

// 1 / sqrt(mean + epsilon) of values with this sum of squares.
__device__ inline float inverse_rms(float squares, std::int64_t count, float epsilon) {
    return 1.0f / sqrtf(squares / static_cast<float>(count) + epsilon);
}

// Threads of a block for a row of this width, which alone sets the order of the row's sums.
inline constexpr int kNormThreadsMax = 1024;
inline unsigned norm_threads(std::int64_t width) {
    constexpr std::int64_t kValues = 4;  // of a thread, where the row is not very wide
    const std::int64_t warps = (width + kValues * kWarp - 1) / (kValues * kWarp);
    return static_cast<unsigned>(std::clamp<std::int64_t>(warps * kWarp, kWarp, kNormThreadsMax));
}

// Sum over the block, whose threads are whole warps: the same in all of them. `scratch` is shared
// memory of a value a warp.
__device__ inline float sum_of_block(float value, float* scratch) {
    value = warp_sum(value);
    if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
    __syncthreads();
    float sum = 0.0f;
    for (unsigned i = 0; i < blockDim.x / kWarp; ++i) sum += scratch[i];
    __syncthreads();
    return sum;
}

// store(c, v_c / sqrt(mean(v^2) + epsilon) * gain[c]) for the `width` values v_c = load(c), by a
// block of norm_threads(width) threads; `held` is shared memory of `width` values. A column is
// loaded and stored by the same thread.
template <typename Load, typename Store>
__device__ void norm_row(std::int64_t width, float epsilon, op::Gain gain, float* held, Load load,
                         Store store) {
    __shared__ float sums[kNormThreadsMax / kWarp];
    float squares = 0.0f;
    for (std::int64_t c = threadIdx.x; c < width; c += blockDim.x) {
        const float value = load(c);
        held[c] = value;
        squares = __fmaf_rn(value, value, squares);
    }
    const float inverse = inverse_rms(sum_of_block(squares, sums), width, epsilon);
    for (std::int64_t c = threadIdx.x; c < width; c += blockDim.x) {
        store(c, held[c] * inverse * gain[c]);
    }
}

// The turns of one position: dimensions i and i + pairs, i < pairs, turn together.
struct Turns {
    const double* inverse_frequency = nullptr;
    int pairs = 0;
    std::int64_t position = 0;
};

// Sine and cosine of the turn of pair `i`. The angle needs double: positions reach millions.
__device__ inline float2 turn_of(const Turns& turns, int i) {
    constexpr double kInversePi = 0.318309886183790671538;
    const double angle = static_cast<double>(turns.position) * turns.inverse_frequency[i];
    const double halves = angle * kInversePi;  // half turns
    float2 turn;
    sincospif(static_cast<float>(halves - 2.0 * rint(0.5 * halves)), &turn.x, &turn.y);
    return turn;
}

// store(i, value i of rope(rms_norm(x; gain))) for a head x of `dim` values, by a warp, whose
// lanes all call it; turn_at(i) is the sine and cosine of pair i < pairs. `held` is shared memory
// of `dim` values that is the warp's own, and what `store` may write value i to.
template <typename TurnAt, typename Store>
__device__ void norm_and_turn(const float* x, int dim, op::Gain gain, float epsilon, int pairs,
                              TurnAt turn_at, float* held, Store store) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    float squares = 0.0f;
    for (int i = lane; i < dim; i += kWarp) {
        const float value = x[i];
        held[i] = value;
        squares = __fmaf_rn(value, value, squares);
    }
    const float inverse = inverse_rms(warp_sum(squares), dim, epsilon);
    for (int i = lane; i < dim; i += kWarp) held[i] = held[i] * inverse * gain[i];
    __syncwarp();
    for (int i = lane; i < pairs; i += kWarp) {
        const float2 turn = turn_at(i);
        const float a = held[i];
        const float b = held[i + pairs];
        store(i, a * turn.y - b * turn.x);
        store(i + pairs, b * turn.y + a * turn.x);
    }
    for (int i = 2 * pairs + lane; i < dim; i += kWarp) store(i, held[i]);
    __syncwarp();
}

// The same with the turns of a position.
template <typename Store>
__device__ void norm_and_turn(const float* x, int dim, op::Gain gain, float epsilon,
                              const Turns& turns, float* held, Store store) {
    norm_and_turn(
        x, dim, gain, epsilon, turns.pairs, [&](int i) { return turn_of(turns, i); }, held, store);
}

}  // namespace strata::cuda
