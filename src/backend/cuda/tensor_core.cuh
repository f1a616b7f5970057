// Products of small tiles on tensor cores, and what brings the tiles there: asynchronous copies to
// shared memory and loads of its rows as fragments. Chips before 8.0 and the host get the same sums
// in plain code.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/intrinsics.cuh"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

namespace strata::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define STRATA_TENSOR_CORES 1
#else
#define STRATA_TENSOR_CORES 0
#endif

// Chips without these tensor cores have no prompt route (cuda.cc): its products would only cost
// them time to compile.
#if defined(__CUDA_ARCH__) && !STRATA_TENSOR_CORES
inline constexpr bool kPromptsRun = false;
#else
inline constexpr bool kPromptsRun = true;
#endif

// The two values as BF16, to the nearest, ties to even; `low` in the lower half. NaN stays NaN.
__device__ inline std::uint32_t bf16_pair(float low, float high) {
#if STRATA_TENSOR_CORES
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    const auto round = [](float value) {
        const unsigned bits = __float_as_uint(value);
        if (value != value) return bits >> 16 | 0x40u;
        return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    };
    return round(low) | round(high) << 16;
#endif
}
__device__ inline std::uint16_t bf16_of(float value) {
    return static_cast<std::uint16_t>(bf16_pair(value, 0.0f));
}

// The same of F16.
__device__ inline std::uint32_t f16_pair(float low, float high) {
    return std::uint32_t{float_to_half(low)} | std::uint32_t{float_to_half(high)} << 16;
}

// Copies 16 bytes to shared memory, zeros where `take` is false. Both addresses are aligned to 16.
__device__ inline void copy_async(void* shared, const void* from, bool take) {
#if STRATA_TENSOR_CORES
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const int bytes = take ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes)
                 : "memory");
#else
    *static_cast<uint4*>(shared) = take ? *static_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
#endif
}
// Ends a group of this thread's copies.
__device__ inline void commit_copies() {
#if STRATA_TENSOR_CORES
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until all but the last kPending groups of this thread have arrived.
template <int kPending>
__device__ inline void wait_copies() {
#if STRATA_TENSOR_CORES
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// Four 8 x 8 tiles of 16-bit values in shared memory: lanes 8i .. 8i+7 give the addresses of tile
// i's rows, and register i of a lane gets the pair lane % 4 of row lane / 4.
__device__ inline void load_tiles(std::uint32_t (&to)[4], const void* row) {
#if STRATA_TENSOR_CORES
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
#else
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const auto at = reinterpret_cast<std::uint64_t>(row);
    for (int i = 0; i < 4; ++i) {
        const std::uint64_t start = __shfl_sync(kAllLanes, at, 8 * i + lane / 4);
        to[i] = reinterpret_cast<const std::uint32_t*>(start)[lane % 4];
    }
#endif
}
// The same tiles turned: register i of a lane gets rows 2 (lane % 4) and the next of column
// lane / 4.
__device__ inline void load_tiles_turned(std::uint32_t (&to)[4], const void* row) {
#if STRATA_TENSOR_CORES
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
#else
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const auto at = reinterpret_cast<std::uint64_t>(row);
    for (int i = 0; i < 4; ++i) {
        std::uint32_t pair = 0;
        for (int j = 0; j < 2; ++j) {
            const std::uint64_t start = __shfl_sync(kAllLanes, at, 8 * i + lane % 4 * 2 + j);
            pair |= std::uint32_t{reinterpret_cast<const std::uint16_t*>(start)[lane / 4]}
                    << 16 * j;
        }
        to[i] = pair;
    }
#endif
}

namespace detail {

// One pair of 16-bit values times another, onto the sum.
template <float (*kDecode)(std::uint16_t)>
__device__ inline float add_products(std::uint32_t a, std::uint32_t b, float sum) {
    sum = __fmaf_rn(kDecode(static_cast<std::uint16_t>(a)), kDecode(static_cast<std::uint16_t>(b)),
                    sum);
    return __fmaf_rn(kDecode(static_cast<std::uint16_t>(a >> 16)),
                     kDecode(static_cast<std::uint16_t>(b >> 16)), sum);
}

// sum[16 x 8] += a[16 x 16] b[16 x 8], in the order of columns.
template <float (*kDecode)(std::uint16_t)>
__device__ inline void add_tile_plain(float (&sum)[4], const std::uint32_t (&a)[4],
                                      std::uint32_t b0, std::uint32_t b1) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#ifdef __CUDACC__
    const auto from = [](std::uint32_t value, int lane_) {
        return __shfl_sync(kAllLanes, value, lane_);
    };
    const auto all_a = [&](int i) { return a[i]; };
    const auto all_b = [&](int i) { return i == 0 ? b0 : b1; };
#else
    // One exchange for two registers.
    const emulator::Lanes low = emulator::exchange(std::uint64_t{a[1]} << 32 | a[0]);
    const emulator::Lanes high = emulator::exchange(std::uint64_t{a[3]} << 32 | a[2]);
    const emulator::Lanes right = emulator::exchange(std::uint64_t{b1} << 32 | b0);
    const auto from = [](const auto& lanes, int lane_) { return lanes(lane_); };
    const auto all_a = [&](int i) {
        return [&, i](int lane_) {
            const std::uint64_t pair = i < 2 ? low.value[lane_] : high.value[lane_];
            return static_cast<std::uint32_t>(i % 2 == 0 ? pair : pair >> 32);
        };
    };
    const auto all_b = [&](int i) {
        return [&, i](int lane_) {
            return static_cast<std::uint32_t>(i == 0 ? right.value[lane_]
                                                     : right.value[lane_] >> 32);
        };
    };
#endif
    for (int half = 0; half < 2; ++half) {
        for (int k = 0; k < 4; ++k) {
            for (int row = 0; row < 2; ++row) {
                const std::uint32_t left = from(all_a(2 * half + row), lane / 4 * 4 + k);
                for (int col = 0; col < 2; ++col) {
                    const std::uint32_t other = from(all_b(half), (lane % 4 * 2 + col) * 4 + k);
                    float& at = sum[2 * row + col];
                    at = add_products<kDecode>(left, other, at);
                }
            }
        }
    }
}

}  // namespace detail

// sum[16 x 8] += a[16 x 16] b[16 x 8] of BF16. With g = lane / 4 and q = lane % 4 a lane holds
// rows g and g + 8 of a in a[0], a[1] (columns 2q, 2q+1) and a[2], a[3] (columns 8 + 2q, ..);
// rows 2q, 2q+1 of b's column g in b0, rows 8 + 2q, .. in b1; of the sum row g in sum[0], sum[1]
// (columns 2q, 2q+1), row g + 8 in sum[2], sum[3].
__device__ inline void add_tile_bf16(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                     std::uint32_t b1) {
#if STRATA_TENSOR_CORES
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    detail::add_tile_plain<bfloat_to_float>(sum, a, b0, b1);
#endif
}
// The same of F16.
__device__ inline void add_tile_f16(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
#if STRATA_TENSOR_CORES
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    detail::add_tile_plain<half_to_float>(sum, a, b0, b1);
#endif
}

// sum[16 x 8] += a[16 x 32] b[32 x 8] of bytes with signs. A lane has of rows g and g + 8 of a,
// g = lane / 4, and of column g of b, those of q = lane % 4: a[0] and a[1] of columns 4 q .. of a,
// a[2] and a[3] of 16 + 4 q .., b0 and b1 the same rows of b. Of the sums it gets columns 2 q and
// 2 q + 1 of row g, then of row g + 8.
__device__ inline void add_tile_s8(int (&sum)[4], const unsigned (&a)[4], unsigned b0,
                                   unsigned b1) {
#if STRATA_TENSOR_CORES
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif !defined(__CUDACC__)
    const emulator::Lanes low = emulator::exchange(std::uint64_t{a[1]} << 32 | a[0]);
    const emulator::Lanes high = emulator::exchange(std::uint64_t{a[3]} << 32 | a[2]);
    const emulator::Lanes right = emulator::exchange(std::uint64_t{b1} << 32 | b0);
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (int i = 0; i < 4; ++i) {
        for (int q = 0; q < 4; ++q) {
            const int row = lane / 4 * 4 + q;
            const int col = (lane % 4 * 2 + i % 2) * 4 + q;
            const int down = i / 2 * 32;
            sum[i] = __dp4a(static_cast<int>(low.value[row] >> down),
                            static_cast<int>(right.value[col]), sum[i]);
            sum[i] = __dp4a(static_cast<int>(high.value[row] >> down),
                            static_cast<int>(right.value[col] >> 32), sum[i]);
        }
    }
#endif
}

}  // namespace strata::cuda
