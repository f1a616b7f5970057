// Kernels that are written once and compiled for every set of instructions.
//
// A kernel is a struct with a static member `template <typename V> run(...)`, V the widest vector
// of floats; run_kernel picks the form for the instructions given. What it calls must be inlined
// into it (STRATA_INLINE), else it is compiled for the scalar set. Results never depend on the set:
// the compiler may not contract, loops over independent elements round each as it would alone, and
// sums over elements add value i to partial sum i mod kLanes, as in product.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "backend/cpu/instructions.h"
#include "backend/cpu/product.h"

#define STRATA_INLINE [[gnu::always_inline]] inline

namespace strata::cpu {

using Float4 = float __attribute__((vector_size(16)));
using Float8 = float __attribute__((vector_size(32)));
using Float16 = float __attribute__((vector_size(64)));

template <typename V>
inline constexpr std::int64_t kVectorWidth = sizeof(V) / sizeof(float);

template <typename V>
STRATA_INLINE void load_vector(const float* from, V& to) {
    std::memcpy(&to, from, sizeof(V));
}

template <typename V>
STRATA_INLINE void store_vector(const V& from, float* to) {
    std::memcpy(to, &from, sizeof(V));
}

// Adds `lane` up in halves, destroying it.
STRATA_INLINE float sum_lanes(float* lane) {
    for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
    }
    return lane[0];
}

// The sum of x[i]^2.
template <typename V>
STRATA_INLINE float sum_squares(const float* x, std::int64_t n) {
    constexpr int kParts = kLanes / kVectorWidth<V>;
    V sum[kParts] = {};
    const std::int64_t whole = n / kLanes * kLanes;
    for (std::int64_t i = 0; i < whole; i += kLanes) {
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) {
            V value;
            load_vector(x + i + part * kVectorWidth<V>, value);
            sum[part] += value * value;
        }
    }
    float lane[kLanes];
    std::memcpy(lane, sum, sizeof(lane));
    for (std::int64_t i = whole; i < n; ++i) lane[i - whole] += x[i] * x[i];
    return sum_lanes(lane);
}

#if defined(__x86_64__)

template <typename Kernel, typename... Args>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] void run_avx512(
    Args... args) {
    Kernel::template run<Float16>(args...);
}

template <typename Kernel, typename... Args>
[[gnu::target("avx2")]] void run_avx2(Args... args) {
    Kernel::template run<Float8>(args...);
}

#endif

template <typename Kernel, typename... Args>
void run_kernel(Instructions instructions, Args... args) {
#if defined(__x86_64__)
    if (instructions == Instructions::avx512) return run_avx512<Kernel>(args...);
    if (instructions == Instructions::avx2) return run_avx2<Kernel>(args...);
#endif
    Kernel::template run<Float4>(args...);
}

}  // namespace strata::cpu
