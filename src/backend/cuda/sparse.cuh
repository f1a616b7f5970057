// What a row of sparse attention sees, on the device.
#pragma once

#include "backend/cuda/intrinsics.cuh"
#include "backend/cuda/sparse.h"

namespace strata::cuda {

// The rows of the cache that row t attends to, ascending: those of the blocks that it keeps, or of
// all, then the tail.
struct Seen {
    int position;  // of row t
    int ratio;
    int blocks;                  // complete ones
    int kept;                    // of these
    const std::int32_t* chosen;  // the kept ones

    __device__ Seen(const SparseRows& rows, std::int64_t t)
        : position(static_cast<int>(first_of(rows.args) + t)),
          ratio(rows.args.shape.ratio),
          chosen(rows.chosen + t * rows.args.shape.blocks_kept) {
        blocks =
            static_cast<int>((static_cast<unsigned>(position) + 1u) / static_cast<unsigned>(ratio));
        kept = min(blocks, rows.args.shape.blocks_kept);
    }
    // Then nothing is chosen.
    __device__ bool all() const { return kept == blocks; }
    __device__ int count() const { return position - (blocks - kept) * ratio + 1; }
    __device__ int at(int i) const {
        if (all()) return i;
        if (i < kept * ratio) return chosen[i / ratio] * ratio + i % ratio;
        return i + (blocks - kept) * ratio;
    }
};

}  // namespace strata::cuda
