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

// The `wanted` best finite logits of each row, at most op::kCandidatesMax, as one list a row in the
// op's memory.
Lists choose_best(Queue& queue, MatrixView<const float> logits, int wanted);

}  // namespace strata::cuda
