// Weights that a later kernel will read, brought to the device's cache by a kernel that waits for
// little else: while it is at work the memory would be idle.
#pragma once

#include <algorithm>
#include <span>

#include "backend/cuda/intrinsics.cuh"
#include "backend/cuda/project.h"

namespace strata::cuda {

struct Ahead {
    static constexpr int kRangesMax = 3;
    static constexpr int kPieceBytes = 16 << 10;  // of one request
    // What memory gives in a few microseconds; a third of the cache of cards that have this much
    // bandwidth.
    static constexpr std::int64_t kBytesMost = std::int64_t{16} << 20;
    const std::byte* data[kRangesMax] = {};
    int bytes[kRangesMax] = {};

    // The first of what the products read.
    static Ahead of(std::span<const Product> products) {
        Ahead ahead;
        std::int64_t left = kBytesMost;
        const std::size_t count = std::min<std::size_t>(products.size(), kRangesMax);
        for (std::size_t i = 0; i < count; ++i) {
            const op::Weight& weight = products[i].weight;
            if (reinterpret_cast<std::uintptr_t>(weight.data) % 16 != 0) continue;
            const std::int64_t bytes = std::min(left, weight.rows * weight.row_bytes) / 16 * 16;
            ahead.data[i] = weight.data;
            ahead.bytes[i] = static_cast<int>(bytes);
            left -= bytes;
        }
        return ahead;
    }

    // Asks for the block's part, by one thread of its last warp. All blocks call it, after their
    // wait: before, the memory is not idle.
    __device__ void ask() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        if (threadIdx.x + kWarp != blockDim.x) return;
        const std::int64_t blocks = std::int64_t{gridDim.x} * gridDim.y * gridDim.z;
        const std::int64_t own =
            blockIdx.x +
            std::int64_t{gridDim.x} * (blockIdx.y + std::int64_t{gridDim.y} * blockIdx.z);
#pragma unroll 1
        for (int i = 0; i < kRangesMax; ++i) {
#pragma unroll 1
            for (std::int64_t at = own * kPieceBytes; at < bytes[i]; at += blocks * kPieceBytes) {
                asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                                 __cvta_generic_to_global(data[i] + at)),
                             "r"(static_cast<int>(min(std::int64_t{kPieceBytes}, bytes[i] - at))));
            }
        }
#endif
    }
};

}  // namespace strata::cuda
