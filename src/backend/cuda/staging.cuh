// Bytes of device memory that a warp asks for at once and finds in shared memory later: they take
// no registers on their way, so a kernel can have all it reads in flight with little code.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/intrinsics.cuh"

#ifdef __CUDACC__
#define STRATA_NOINLINE __noinline__
#else
#define STRATA_NOINLINE
#endif

namespace strata::cuda {

inline constexpr int kStageAlign = 16;

// Copies by the lanes of a warp; all call it, and __syncwarp() before they read.
template <typename Word>
__device__ inline void copy_words(const std::byte* from, int bytes, std::byte* to) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 1
    for (int i = lane; i < bytes / static_cast<int>(sizeof(Word)); i += kWarp) {
        reinterpret_cast<Word*>(to)[i] = __ldg(reinterpret_cast<const Word*>(from) + i);
    }
}

STRATA_NOINLINE static __device__ void copy_bytes(const std::byte* from, int bytes, std::byte* to) {
    const auto bits = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from)) |
                      static_cast<unsigned>(bytes);
    if (bits % 16 == 0) {
        copy_words<uint4>(from, bytes, to);
    } else if (bits % 4 == 0) {
        copy_words<unsigned>(from, bytes, to);
    } else {
        copy_words<std::uint8_t>(from, bytes, to);
    }
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ inline unsigned shared_address(const void* address) {
    return static_cast<unsigned>(__cvta_generic_to_shared(address));
}
#endif

// Copies 16 bytes to shared memory, both addresses multiples of that; other blocks of the
// multiprocessor find them in its cache. They are there after wait_shared(), for others after a
// barrier too.
__device__ inline void copy_shared(std::byte* to, const std::byte* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(__cvta_generic_to_global(from))
                 : "memory");
#else
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
#endif
}
__device__ inline void wait_shared() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Where a warp has bytes brought to, once. All of the warp call its functions.
struct Stage {
    std::byte* to;           // shared memory of the warp, aligned to kStageAlign
    std::uint64_t* barrier;  // shared memory of the warp
    bool copies = false;     // by the copy engine

    // Before begin().
    __device__ void prepare() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        if (threadIdx.x % kWarp == 0) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier))
                         : "memory");
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncwarp();
#endif
    }

    // `from` is memory that no kernel writes.
    __device__ void begin(const std::byte* from, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        const auto bits = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from)) |
                          static_cast<unsigned>(bytes);
        copies = bits % kStageAlign == 0;
        if (copies) {
            if (threadIdx.x % kWarp == 0) {
                const unsigned at = shared_address(barrier);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at),
                             "r"(bytes)
                             : "memory");
                asm volatile(
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                    "[%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                    "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(at)
                    : "memory");
            }
            // A lane that waits for what is not asked for yet would hold up the one that asks.
            __syncwarp();
            return;
        }
#endif
        copy_bytes(from, bytes, to);
    }

    // Returns when the bytes are there.
    __device__ void wait() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        if (copies) {
            const unsigned at = shared_address(barrier);
            unsigned done = 0;
            while (done == 0) {
                asm volatile(
                    "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; "
                    "selp.u32 %0, 1, 0, p; }"
                    : "=r"(done)
                    : "r"(at)
                    : "memory");
            }
            return;
        }
#endif
        __syncwarp();
    }
};

}  // namespace strata::cuda
