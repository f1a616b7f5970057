// Keys and values of prompts on their way to shared memory, where they lie as F16 in rows of kDim.
#pragma once

#include "backend/cuda/cache.cuh"
#include "backend/cuda/tensor_core.cuh"

namespace strata::cuda::prompt {

// Where 16 bytes of a row lie; those of eight neighbouring rows in different banks.
template <int kDim>
__device__ inline std::byte* row_piece(std::byte* rows, int row, int piece) {
    return rows + row * 2 * kDim + (piece ^ (row & 7)) * 16;
}

// Eight entries from `at` on, zeros where `take` is false.
__device__ inline void bring_piece(std::byte* to, CacheF16, const void* cache, std::int64_t at,
                                   bool take) {
    copy_async(to, static_cast<const std::uint16_t*>(cache) + (take ? at : 0), take);
}
__device__ inline void bring_piece(std::byte* to, CacheF32, const void* cache, std::int64_t at,
                                   bool take) {
    float v[8] = {};
    if (take) {
        CacheF32::Eight eight;
        eight.load(static_cast<const float*>(cache) + at);
        eight.unpack(v);
    }
    *reinterpret_cast<uint4*>(to) = make_uint4(f16_pair(v[0], v[1]), f16_pair(v[2], v[3]),
                                               f16_pair(v[4], v[5]), f16_pair(v[6], v[7]));
}

}  // namespace strata::cuda::prompt
