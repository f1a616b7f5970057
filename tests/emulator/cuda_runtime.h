// The language of kernels: their indices, barriers, exchanges within a warp, and arithmetic.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <tuple>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
// Blocks run one after another, so each static stands for the memory of the one that runs.
#define __shared__ static

extern dim3 threadIdx;
extern dim3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
inline constexpr int warpSize = 32;

namespace emulator {

// Runs `thread` once for every thread of every block.
void run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);
// Aligned to 128; of the block that runs.
std::byte* dynamic_shared();
void block_barrier();
void warp_barrier();
// Every lane's value of a warp, those of threads that have ended 0. All of the warp must call it.
struct Lanes {
    std::uint64_t value[32];
};
Lanes exchange(std::uint64_t value);

template <typename T>
T shuffle(T value, int from) {
    static_assert(sizeof(T) <= 8);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    const Lanes lanes = exchange(bits);
    std::memcpy(&value, &lanes.value[from & 31], sizeof(T));
    return value;
}
inline int lane() {
    return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) %
                            32);
}

}  // namespace emulator

template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
    cudaError_t result = cudaSuccess;
    if (emulator::capturing()) {
        const cudaLaunchConfig_t own = *config;
        emulator::capture([own, kernel, values = std::tuple<Params...>(args...)] {
            cudaError_t replayed = cudaSuccess;
            if (!emulator::may_run(own, replayed)) return replayed;
            emulator::run(own.gridDim, own.blockDim, own.dynamicSmemBytes,
                          [&] { std::apply(kernel, values); });
            return replayed;
        });
        return emulator::state();
    }
    if (!emulator::may_run(*config, result)) return result;
    ++emulator::counts().launches;
    emulator::run(config->gridDim, config->blockDim, config->dynamicSmemBytes,
                  [&] { kernel(args...); });
    return result;
}
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int) {
    return emulator::state();
}

inline void __syncthreads() { emulator::block_barrier(); }
inline void __syncwarp(unsigned = ~0u) { emulator::warp_barrier(); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}

template <typename T>
T __shfl_sync(unsigned, T value, int from, int width = 32) {
    const int base = emulator::lane() / width * width;
    return emulator::shuffle(value, base + from % width);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask, int = 32) {
    return emulator::shuffle(value, emulator::lane() ^ mask);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned by, int width = 32) {
    const int lane = emulator::lane();
    const int from = lane + static_cast<int>(by);
    return emulator::shuffle(value, from / width == lane / width ? from : lane);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned by, int width = 32) {
    const int lane = emulator::lane();
    const int from = lane - static_cast<int>(by);
    return emulator::shuffle(value, from >= lane / width * width ? from : lane);
}
inline unsigned __ballot_sync(unsigned, bool vote) {
    const emulator::Lanes lanes = emulator::exchange(vote ? 1 : 0);
    unsigned bits = 0;
    for (int i = 0; i < 32; ++i) bits |= static_cast<unsigned>(lanes.value[i] != 0) << i;
    return bits;
}
inline bool __any_sync(unsigned mask, bool vote) { return __ballot_sync(mask, vote) != 0; }
inline bool __all_sync(unsigned mask, bool vote) { return __ballot_sync(mask, !vote) == 0; }

template <typename T>
T atomicAdd(T* at, T value) {
    const T before = *at;
    *at = before + value;
    return before;
}
template <typename T>
T atomicMax(T* at, T value) {
    const T before = *at;
    if (value > before) *at = value;
    return before;
}
template <typename T>
T atomicMin(T* at, T value) {
    const T before = *at;
    if (value < before) *at = value;
    return before;
}
template <typename T>
T atomicCAS(T* at, T expected, T value) {
    const T before = *at;
    if (before == expected) *at = value;
    return before;
}
template <typename T>
T atomicExch(T* at, T value) {
    const T before = *at;
    *at = value;
    return before;
}

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline int __float2int_rn(float value) { return static_cast<int>(std::nearbyint(value)); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __expf(float a) { return std::exp(a); }
inline float rsqrtf(float a) { return 1.0f / std::sqrt(a); }
inline void sincosf(float a, float* sine, float* cosine, int) {
    *sine = std::sin(a);
    *cosine = std::cos(a);
}
inline void sincospif(float a, float* sine, float* cosine) {
    constexpr double kPi = 3.14159265358979323846;
    *sine = static_cast<float>(std::sin(kPi * a));
    *cosine = static_cast<float>(std::cos(kPi * a));
}
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
inline int __ffs(int bits) {
    return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned pick = selector >> 4 * i & 15;
        auto byte = static_cast<unsigned>(both >> 8 * (pick & 7) & 255);
        if ((pick & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
        result |= byte << 8 * i;
    }
    return result;
}
inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 32; i += 8) {
        sum += static_cast<std::int8_t>(a >> i) * static_cast<std::int8_t>(b >> i);
    }
    return sum;
}
inline unsigned __vsub4(unsigned a, unsigned b) {
    unsigned result = 0;
    for (int i = 0; i < 32; i += 8) result |= (((a >> i) - (b >> i)) & 255u) << i;
    return result;
}
inline unsigned __vadd4(unsigned a, unsigned b) {
    unsigned result = 0;
    for (int i = 0; i < 32; i += 8) result |= (((a >> i) + (b >> i)) & 255u) << i;
    return result;
}
template <typename T>
T __ldg(const T* at) {
    return *at;
}
template <typename T>
T __ldcs(const T* at) {
    return *at;
}

struct alignas(8) int2 {
    int x, y;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

using std::max;
using std::min;
