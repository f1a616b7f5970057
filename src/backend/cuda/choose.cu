// Bounded by reading the logits of every row once: blocks of threads each find the best of a piece,
// one a row finds the best of those.
#include "backend/cuda/choose.cuh"

#include <algorithm>

#include "backend/cuda/launch.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

// The best of each piece of the logits: block (piece, row).
__global__ void __launch_bounds__(kLogitThreads)
    choose_of_pieces(MatrixView<const float> logits, Lists lists) {
    follow_earlier_kernels();
    const std::int64_t row = blockIdx.y;
    const std::int64_t first = std::int64_t{blockIdx.x} * kPieceLogits;
    Best held[kLogitsHeld];
    float broken = 0.0f;
#pragma unroll
    for (int i = 0; i < kLogitsHeld; ++i) {
        const std::int64_t at = first + i * kLogitThreads + threadIdx.x;
        held[i] = {0.0f, -1};
        if (at >= logits.cols) continue;
        const float logit = logits.row(row)[at];
        if (fabsf(logit) < INFINITY) {
            held[i] = {logit, static_cast<int>(at)};
        } else {
            broken = 1.0f;
        }
    }
    __shared__ float scratch[kLogitWarps];
    broken = block_sum<kLogitThreads>(broken, scratch);
    if (threadIdx.x == 0) {
        lists.finite[row * lists.lists + blockIdx.x] = broken == 0.0f ? 1 : 0;
    }
    choose(held, lists.wanted, lists.at(row, static_cast<int>(blockIdx.x)));
}

// The best of a row's lists, to a list of its own: block (row). Where they are more than the
// threads hold, those so far go another round with the next.
__global__ void __launch_bounds__(kLogitThreads) choose_of_lists(Lists from, Lists to) {
    follow_earlier_kernels();
    __shared__ Best chosen[op::kCandidatesMax];
    __shared__ float scratch[kLogitWarps];
    const std::int64_t row = blockIdx.x;
    const int count = from.lists * from.wanted;
    const Best* all = from.at(row, 0);
    for (int i = static_cast<int>(threadIdx.x); i < to.wanted; i += kLogitThreads)
        chosen[i].row = -1;
    __syncthreads();
    for (int first = 0; first < count; first += kPieceLogits - op::kCandidatesMax) {
        const int end = min(count, first + kPieceLogits - op::kCandidatesMax);
        Best held[kLogitsHeld];
#pragma unroll
        for (int i = 0; i < kLogitsHeld; ++i) {
            const int at = i * kLogitThreads + static_cast<int>(threadIdx.x);
            const int kept = at - (end - first);
            held[i] = {0.0f, -1};
            if (kept < 0) {
                held[i] = all[first + at];
            } else if (kept < to.wanted) {
                held[i] = chosen[kept];
            }
        }
        __syncthreads();
        choose(held, to.wanted, chosen);
        __syncthreads();
    }
    for (int i = static_cast<int>(threadIdx.x); i < to.wanted; i += kLogitThreads) {
        to.at(row, 0)[i] = chosen[i];
    }
    float broken = 0.0f;
    for (int i = static_cast<int>(threadIdx.x); i < from.lists; i += kLogitThreads) {
        if (from.finite[row * from.lists + i] == 0) broken = 1.0f;
    }
    broken = block_sum<kLogitThreads>(broken, scratch);
    if (threadIdx.x == 0) to.finite[row] = broken == 0.0f ? 1 : 0;
}

}  // namespace

Lists make_lists(Queue& queue, std::int64_t rows, std::int64_t lists, std::int64_t wanted) {
    return {queue.take<Best>(rows * lists * wanted), queue.take<int>(rows * lists),
            static_cast<int>(lists), static_cast<int>(wanted)};
}

Lists best_of_lists(Queue& queue, const Lists& lists, std::int64_t rows) {
    const Lists best = make_lists(queue, rows, 1, lists.wanted);
    launch_dependent(queue, {dim3(static_cast<unsigned>(rows)), kLogitThreads}, choose_of_lists,
                     lists, best);
    return best;
}

Lists choose_best(Queue& queue, MatrixView<const float> logits, int wanted) {
    STRATA_CHECK(wanted >= 1 && wanted <= op::kCandidatesMax);
    const std::int64_t pieces = (logits.cols + kPieceLogits - 1) / kPieceLogits;
    const Lists of_pieces = make_lists(queue, logits.rows, pieces, wanted);
    if (logits.rows == 0) return of_pieces;
    const auto rows = static_cast<unsigned>(logits.rows);
    launch_dependent(queue, {dim3(static_cast<unsigned>(pieces), rows), kLogitThreads},
                     choose_of_pieces, logits, of_pieces);
    return best_of_lists(queue, of_pieces, logits.rows);
}

}  // namespace strata::cuda
