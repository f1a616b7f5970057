// What kernels share: sums over a warp and a block, conversions, dynamic shared memory.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

#include "quant/half.h"

namespace strata::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarp = 32;

__device__ inline int own_warp() { return static_cast<int>(threadIdx.x) / kWarp; }
__device__ inline int own_lane() { return static_cast<int>(threadIdx.x) % kWarp; }

// The block's dynamic shared memory, aligned to 16.
__device__ inline std::byte* shared_bytes() {
#ifdef __CUDACC__
    extern __shared__ __align__(16) unsigned char strata_dynamic_shared[];
    return reinterpret_cast<std::byte*>(strata_dynamic_shared);
#else
    return emulator::dynamic_shared();
#endif
}

__device__ inline float half_to_float(std::uint16_t bits) {
#ifdef __CUDACC__
    return __half2float(__ushort_as_half(bits));
#else
    return quant::f16_to_f32(bits);
#endif
}
__device__ inline std::uint16_t float_to_half(float value) {
#ifdef __CUDACC__
    return __half_as_ushort(__float2half_rn(value));
#else
    return quant::f32_to_f16(value);
#endif
}
__device__ inline float bfloat_to_float(std::uint16_t bits) {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

// Returns once what earlier kernels of the stream wrote is there. A kernel that was launched as
// dependent calls it before it touches anything that changes, but for what load_settled() reads.
__device__ inline void wait_for_earlier_kernels() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

// Lets a dependent kernel after this one begin, up to its wait, once all blocks came here.
__device__ inline void let_later_kernel_begin() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Both. All blocks of a dependent kernel come here, also those with no work: else it could end
// before the kernel before it. As no kernel begins before the one before it is past its wait, all
// but that one have ended when a kernel begins.
__device__ inline void follow_earlier_kernels() {
    wait_for_earlier_kernels();
    let_later_kernel_begin();
}

// A word of 2, 4, 8 or 16 bytes of memory that the kernel does not write. Where a wait for earlier
// kernels follows, the load is on its way by then: one through the read-only cache may come later.
template <typename Word>
__device__ inline Word load_early(const void* from) {
#ifdef __CUDACC__
    Word word;
    if constexpr (sizeof(Word) == 16) {
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                     : "l"(__cvta_generic_to_global(from)));
    } else if constexpr (sizeof(Word) == 8) {
        asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
                     : "=r"(word.x), "=r"(word.y)
                     : "l"(__cvta_generic_to_global(from)));
    } else if constexpr (sizeof(Word) == 4) {
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(__cvta_generic_to_global(from)));
    } else {
        static_assert(sizeof(Word) == 2);
        asm volatile("ld.global.u16 %0, [%1];" : "=h"(word) : "l"(__cvta_generic_to_global(from)));
    }
    return word;
#else
    return *static_cast<const Word*>(from);
#endif
}

// A value of 4 or 8 bytes that changes, but not by the kernel right before: when a kernel begins,
// all before that one have ended. From the device's cache, as a multiprocessor's own may be older;
// where a wait follows, the load is on its way by then.
template <typename Value>
__device__ inline Value load_settled(const Value* from) {
#ifdef __CUDACC__
    if constexpr (sizeof(Value) == 8) {
        std::uint64_t bits;
        asm volatile("ld.global.cg.u64 %0, [%1];"
                     : "=l"(bits)
                     : "l"(__cvta_generic_to_global(from)));
        return std::bit_cast<Value>(bits);
    } else {
        static_assert(sizeof(Value) == 4);
        unsigned bits;
        asm volatile("ld.global.cg.u32 %0, [%1];"
                     : "=r"(bits)
                     : "l"(__cvta_generic_to_global(from)));
        return std::bit_cast<Value>(bits);
    }
#else
    return *from;
#endif
}

// The position of row 0 of an op whose place is given, or stands in memory.
template <typename Args>
__device__ std::int64_t first_of(const Args& args) {
    return args.first_at == nullptr ? args.first : *args.first_at;
}

inline constexpr int kLineBytes = 128;  // of the caches

// Has the line at this address brought to the device's cache.
__device__ inline void prefetch(const std::byte* address) {
#ifdef __CUDACC__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#else
    static_cast<void>(address);
#endif
}

// The same value in every lane, the sums always in the same order.
__device__ inline float warp_sum(float value) {
    for (int by = kWarp / 2; by > 0; by /= 2) value += __shfl_xor_sync(kAllLanes, value, by);
    return value;
}
__device__ inline int warp_sum(int value) {
    for (int by = kWarp / 2; by > 0; by /= 2) value += __shfl_xor_sync(kAllLanes, value, by);
    return value;
}
// NaN where any is NaN.
__device__ inline float warp_max(float value) {
    for (int by = kWarp / 2; by > 0; by /= 2) {
        const float other = __shfl_xor_sync(kAllLanes, value, by);
        value = other > value || other != other ? other : value;
    }
    return value;
}

// Sum over a block of `kThreads` threads, the same in all of them. All of the block call it, and
// `scratch` is shared memory of kThreads / 32 values that no other call uses before a barrier.
template <int kThreads>
__device__ float block_sum(float value, float* scratch) {
    static_assert(kThreads % kWarp == 0);
    value = warp_sum(value);
    if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < kThreads / kWarp; ++i) sum += scratch[i];
    __syncthreads();
    return sum;
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float silu(float x) { return x / (1.0f + expf(-x)); }

// As __byte_perm(), for selectors whose nibbles are below 8: nothing is masked.
__device__ inline unsigned pick_bytes(unsigned low, unsigned high, unsigned picks) {
#ifdef __CUDACC__
    unsigned bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(picks));
    return bytes;
#else
    return __byte_perm(low, high, picks);
#endif
}

}  // namespace strata::cuda
