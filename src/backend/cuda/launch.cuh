// One thread an element, for kernels that are bounded by the bytes they move.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cuda/queue.h"

namespace strata::cuda {

inline constexpr int kBlockThreads = 256;
// Enough blocks to fill the largest devices several times over; longer ranges are walked in
// strides.
inline constexpr std::int64_t kBlocksMax = 4096;

template <typename Body>
__global__ void __launch_bounds__(kBlockThreads) each_element(std::int64_t count, Body body) {
    const std::int64_t stride = std::int64_t{gridDim.x} * kBlockThreads;
    for (std::int64_t i = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < count;
         i += stride) {
        body(i);
    }
}

// body(i) for every i in [0, count), in any order; a trivially copyable object with a device call.
template <typename Body>
void for_each(device::Queue& queue, std::int64_t count, Body body) {
    if (count <= 0) return;
    const std::int64_t blocks = std::min((count + kBlockThreads - 1) / kBlockThreads, kBlocksMax);
    each_element<<<static_cast<unsigned>(blocks), kBlockThreads, 0, stream_of(queue)>>>(count,
                                                                                        body);
    STRATA_CUDA_MUST(cudaGetLastError());
}

}  // namespace strata::cuda
