// How kernels are started.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "backend/cuda/intrinsics.cuh"
#include "backend/cuda/queue.h"

namespace strata::cuda {

struct Grid {
    dim3 blocks;
    unsigned threads = 0;          // a block
    std::size_t shared_bytes = 0;  // dynamic, a block
    // The kernel may begin before the one before it has ended, where the device can: it calls
    // wait_for_earlier_kernels() (intrinsics.cuh) before it touches what others wrote, but for what
    // load_settled() may read.
    bool dependent = false;
};

// A launch may ask for more than this much shared memory only after its kernel was told so: of
// 48 KiB what kReadTogether leaves.
inline constexpr std::size_t kSharedBytesUnasked = (std::size_t{48} << 10) - kReadTogether;

// The most that a kernel declares beside what it is launched with, which counts too.
inline constexpr std::size_t kSharedBytesFixed = std::size_t{16} << 10;

// The most that a block may have on every card since 8.0, of which 8.6, 8.9 and 12.0 have least:
// for kernels that have no other way.
inline constexpr std::size_t kSharedBytesEverywhere = (std::size_t{99} << 10) - kReadTogether;

// Submits kernel(args...), unless the queue has failed.
template <typename... Params, typename... Args>
void launch(device::Queue& queue, const Grid& grid, void (*kernel)(Params...), Args&&... args) {
    auto& own = static_cast<Queue&>(queue);
    own.pace();
    if (own.failed()) return;
    const std::size_t shared_bytes = grid.shared_bytes == 0 ? 0 : grid.shared_bytes + kReadTogether;
    if (grid.shared_bytes + kSharedBytesFixed > kSharedBytesUnasked) {
        own.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shared_bytes)));
    }
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid.blocks;
    config.blockDim = dim3(grid.threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = own.stream();
    config.attrs = &attribute;
    config.numAttrs = grid.dependent && own.overlaps_kernels() ? 1 : 0;
    own.note(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

// The same for a kernel that calls follow_earlier_kernels() so.
template <typename... Params, typename... Args>
void launch_dependent(device::Queue& queue, Grid grid, void (*kernel)(Params...), Args&&... args) {
    grid.dependent = true;
    launch(queue, grid, kernel, std::forward<Args>(args)...);
}

inline constexpr int kBlockThreads = 256;
// Enough blocks to fill the largest devices several times over; longer ranges are walked in
// strides.
inline constexpr std::int64_t kBlocksMax = 4096;

template <typename Body>
__global__ void __launch_bounds__(kBlockThreads) each_element(std::int64_t count, Body body) {
    follow_earlier_kernels();
    const std::int64_t stride = std::int64_t{gridDim.x} * kBlockThreads;
    for (std::int64_t i = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < count;
         i += stride) {
        body(i);
    }
}

// body(i) for every i in [0, count), in any order; a trivially copyable object with a device call.
// For kernels that are bounded by the bytes they move.
template <typename Body>
void for_each(device::Queue& queue, std::int64_t count, Body body) {
    if (count <= 0) return;
    const std::int64_t blocks = std::min((count + kBlockThreads - 1) / kBlockThreads, kBlocksMax);
    launch_dependent(queue, {dim3(static_cast<unsigned>(blocks)), kBlockThreads},
                     each_element<Body>, count, body);
}

}  // namespace strata::cuda
