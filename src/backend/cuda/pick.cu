// Bounded by reading the logits once: blocks of threads each take a piece of a row, one a row puts
// the pieces together.
#include "backend/cuda/choose.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

// Of each piece of each row, [rows, pieces]: its best, and the sum of exp(logit - the best one's).
struct Pieces {
    Best* best;
    float* sum;
    int count;
};

// A piece without a number has none as its best and NaN as its sum: block (piece, row).
__global__ void __launch_bounds__(kLogitThreads)
    pick_of_pieces(MatrixView<const float> logits, Pieces pieces) {
    follow_earlier_kernels();
    __shared__ Best scratch[kLogitWarps];
    __shared__ float sums[kLogitWarps];
    const float* row = logits.row(blockIdx.y);
    const std::int64_t first = std::int64_t{blockIdx.x} * kPieceLogits + threadIdx.x;
    float held[kLogitsHeld];
#pragma unroll
    for (int i = 0; i < kLogitsHeld; ++i) {
        const std::int64_t at = first + i * kLogitThreads;
        held[i] = at < logits.cols ? row[at] : -INFINITY;
    }
    Best own{-INFINITY, -1};
#pragma unroll
    for (int i = 0; i < kLogitsHeld; ++i) {
        const std::int64_t at = first + i * kLogitThreads;
        const Best one{held[i], static_cast<int>(at)};
        if (at < logits.cols && held[i] == held[i] && one.before(own)) own = one;
    }
    const Best best = best_of_block<kLogitThreads>(own, scratch);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kLogitsHeld; ++i) {
        // Nothing of nothing where all are as low as can be.
        if (held[i] != -INFINITY) sum += expf(held[i] - best.logit);
    }
    sum = block_sum<kLogitThreads>(sum, sums);
    if (threadIdx.x != 0) return;
    const std::int64_t at = std::int64_t{blockIdx.y} * pieces.count + blockIdx.x;
    pieces.best[at] = best;
    pieces.sum[at] = sum;
}

// Block (row).
__global__ void __launch_bounds__(kLogitThreads) pick_of_rows(op::Pick args, Pieces pieces) {
    follow_earlier_kernels();
    __shared__ Best scratch[kLogitWarps];
    __shared__ float sums[kLogitWarps];
    const Best* bests = pieces.best + std::int64_t{blockIdx.x} * pieces.count;
    const float* parts = pieces.sum + std::int64_t{blockIdx.x} * pieces.count;
    const auto thread = static_cast<int>(threadIdx.x);
    Best own{-INFINITY, -1};
    for (int p = thread; p < pieces.count; p += kLogitThreads) {
        if (bests[p].before(own)) own = bests[p];
    }
    const Best best = best_of_block<kLogitThreads>(own, scratch);
    float sum = 0.0f;
    for (int p = thread; p < pieces.count; p += kLogitThreads) {
        const float below = bests[p].logit == best.logit ? 0.0f : bests[p].logit - best.logit;
        sum += parts[p] * expf(below);
    }
    sum = block_sum<kLogitThreads>(sum, sums);
    if (thread != 0) return;
    const int row = best.row < 0 ? 0 : best.row;
    const auto token =
        static_cast<std::int32_t>(args.token_of_row.empty() ? row : args.token_of_row[row]);
    // Of no logit above the lowest there is no sum either.
    args.picked[blockIdx.x] = {token, sum == 0.0f ? NAN : 1.0f / sum};
    if (!args.tokens.empty()) args.tokens[blockIdx.x] = token;
}

struct CopyBest {
    op::Pick args;
    Lists lists;

    __device__ void operator()(std::int64_t i) const {
        const Best best = lists.best[i];
        op::Candidate& to = args.best.data[i];
        to = {0.0f, -1};
        if (best.row < 0) return;
        const std::int64_t token =
            args.token_of_row.empty() ? best.row : args.token_of_row[best.row];
        to = {best.logit, static_cast<std::int32_t>(token)};
    }
};

}  // namespace

void pick(const op::Pick& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    const std::int64_t rows = args.logits.rows;
    const std::int64_t width = args.logits.cols;
    STRATA_CHECK(width >= 1 && args.picked.size == rows);
    STRATA_CHECK(args.token_of_row.empty() || args.token_of_row.size == width);
    STRATA_CHECK(args.tokens.empty() || args.tokens.size == rows);
    if (rows == 0) return;
    const std::int64_t count = (width + kPieceLogits - 1) / kPieceLogits;
    const Pieces pieces{own.take<Best>(rows * count), own.take<float>(rows * count),
                        static_cast<int>(count)};
    const auto blocks = static_cast<unsigned>(rows);
    launch_dependent(own, {dim3(static_cast<unsigned>(count), blocks), kLogitThreads},
                     pick_of_pieces, args.logits, pieces);
    launch_dependent(own, {dim3(blocks), kLogitThreads}, pick_of_rows, args, pieces);
    if (args.best.empty()) return;
    STRATA_CHECK(args.best.rows == rows);
    const Lists lists = choose_best(own, args.logits, static_cast<int>(args.best.cols));
    for_each(own, args.best.size(), CopyBest{args, lists});
}

}  // namespace strata::cuda
