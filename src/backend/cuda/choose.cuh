// The largest logits of rows.
#pragma once

#include "backend/cuda/best.cuh"
#include "backend/cuda/queue.h"

namespace strata::cuda {

// How a row of logits is cut: a piece a block, some logits a thread.
inline constexpr int kLogitThreads = 256;
inline constexpr int kLogitWarps = kLogitThreads / kWarp;
inline constexpr int kLogitsHeld = 16;  // of a thread
inline constexpr int kPieceLogits = kLogitThreads * kLogitsHeld;

// Lists of the best, [rows, lists, K], and whether all of what they come from was finite.
struct Lists {
    Best* best;
    int* finite;  // [rows, lists]
    int lists;
    int wanted;  // K

    __device__ Best* at(std::int64_t row, int list) const {
        return best + (row * lists + list) * wanted;
    }
};

// The best `wanted` of what the threads hold, best first, to `chosen`. The one who holds the best
// loses it before the next is asked for.
__device__ inline void choose(Best (&held)[kLogitsHeld], int wanted, Best* chosen) {
    __shared__ Best scratch[kLogitWarps];
    for (int n = 0; n < wanted; ++n) {
        Best own = held[0];
#pragma unroll
        for (int i = 1; i < kLogitsHeld; ++i) {
            if (held[i].before(own)) own = held[i];
        }
        const Best best = best_of_block<kLogitThreads>(own, scratch);
#pragma unroll
        for (int i = 0; i < kLogitsHeld; ++i) {
            if (held[i].row == best.row) held[i].row = -1;
        }
        if (threadIdx.x == 0) chosen[n] = best;
    }
}

Lists make_lists(Queue& queue, std::int64_t rows, std::int64_t lists, std::int64_t wanted);

// One list a row of its lists.
Lists best_of_lists(Queue& queue, const Lists& lists, std::int64_t rows);

// The `wanted` best finite logits of each row, at most op::kCandidatesMax, as one list a row in the
// op's memory.
Lists choose_best(Queue& queue, MatrixView<const float> logits, int wanted);

}  // namespace strata::cuda
