// The largest of many numbers and where it stands.
#pragma once

#include "backend/cuda/intrinsics.cuh"

namespace strata::cuda {

// A logit and where it stands; row -1: none.
template <typename Logit>
struct BestOf {
    Logit logit;
    int row;

    // Larger first, of equal ones the lower row.
    __device__ bool before(const BestOf& other) const {
        if (row < 0 || other.row < 0) return row >= 0;
        return logit > other.logit || (logit == other.logit && row < other.row);
    }
};
using Best = BestOf<float>;

// The best of all threads of a block. All of it call; `scratch` is shared memory of kThreads / 32
// that no other call uses before a barrier.
template <int kThreads, typename Logit>
__device__ BestOf<Logit> best_of_block(BestOf<Logit> best, BestOf<Logit>* scratch) {
    static_assert(kThreads % kWarp == 0);
    for (int by = kWarp / 2; by > 0; by /= 2) {
        const BestOf<Logit> other{__shfl_xor_sync(kAllLanes, best.logit, by),
                                  __shfl_xor_sync(kAllLanes, best.row, by)};
        if (other.before(best)) best = other;
    }
    if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = best;
    __syncthreads();
    best = scratch[0];
    for (int w = 1; w < kThreads / kWarp; ++w) {
        if (scratch[w].before(best)) best = scratch[w];
    }
    __syncthreads();
    return best;
}

}  // namespace strata::cuda
