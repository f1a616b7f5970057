// Bounded by reading the logits of every row once: blocks of threads each find the best of a piece,
// one a row finds the best of those, and one walks the rows, which follow from one another, with
// all that it may need of the tables at hand.
#include <algorithm>

#include "backend/cuda/best.cuh"
#include "backend/cuda/intrinsics.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/project.h"
#include "backend/cuda/stored.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kHeld = 16;  // logits of a thread
constexpr int kPieceLogits = kThreads * kHeld;

// The best `wanted` of what the threads hold, best first, to `chosen`. The one who holds the best
// loses it before the next is asked for.
__device__ void choose(Best (&held)[kHeld], int wanted, Best* chosen) {
    __shared__ Best scratch[kWarps];
    for (int n = 0; n < wanted; ++n) {
        Best own = held[0];
#pragma unroll
        for (int i = 1; i < kHeld; ++i) {
            if (held[i].before(own)) own = held[i];
        }
        const Best best = best_of_block<kThreads>(own, scratch);
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            if (held[i].row == best.row) held[i].row = -1;
        }
        if (threadIdx.x == 0) chosen[n] = best;
    }
}

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

// The best of each piece of the logits: block (piece, row).
__global__ void __launch_bounds__(kThreads)
    choose_of_pieces(MatrixView<const float> logits, Lists lists) {
    follow_earlier_kernels();
    const std::int64_t row = blockIdx.y;
    const std::int64_t first = std::int64_t{blockIdx.x} * kPieceLogits;
    Best held[kHeld];
    int broken = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const std::int64_t at = first + i * kThreads + threadIdx.x;
        held[i] = {0.0f, -1};
        if (at >= logits.cols) continue;
        const float logit = logits.row(row)[at];
        if (fabsf(logit) < INFINITY) {
            held[i] = {logit, static_cast<int>(at)};
        } else {
            broken = 1;
        }
    }
    __shared__ int any[kWarps];
    broken = warp_sum(broken);
    if (threadIdx.x % kWarp == 0) any[threadIdx.x / kWarp] = broken;
    __syncthreads();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (const int one : any) sum += one;
        lists.finite[row * lists.lists + blockIdx.x] = sum == 0 ? 1 : 0;
    }
    choose(held, lists.wanted, lists.at(row, static_cast<int>(blockIdx.x)));
}

// The best of a row's lists, to a list of its own: block (row). Where they are more than the
// threads hold, those so far go another round with the next.
__global__ void __launch_bounds__(kThreads) choose_of_lists(Lists from, Lists to) {
    follow_earlier_kernels();
    __shared__ Best chosen[op::kDflashCandidatesMax];
    const std::int64_t row = blockIdx.x;
    const int count = from.lists * from.wanted;
    const Best* all = from.at(row, 0);
    for (int i = static_cast<int>(threadIdx.x); i < to.wanted; i += kThreads) chosen[i].row = -1;
    __syncthreads();
    for (int first = 0; first < count; first += kPieceLogits - op::kDflashCandidatesMax) {
        const int end = min(count, first + kPieceLogits - op::kDflashCandidatesMax);
        Best held[kHeld];
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            const int at = i * kThreads + static_cast<int>(threadIdx.x);
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
    for (int i = static_cast<int>(threadIdx.x); i < to.wanted; i += kThreads) {
        to.at(row, 0)[i] = chosen[i];
    }
    if (threadIdx.x != 0) return;
    int finite = 1;
    for (int i = 0; i < from.lists; ++i) finite &= from.finite[row * from.lists + i];
    to.finite[row] = finite;
}

// The token of candidate c of row i; of a row with fewer, which is not walked, any.
__device__ std::int32_t token_of(const op::DflashSelect& args, const Lists& lists, std::int64_t i,
                                 int c) {
    const int row = max(lists.at(i, 0)[c].row, 0);
    return static_cast<std::int32_t>(args.token_of_row.empty() ? row : args.token_of_row[row]);
}

// Row i * K + c of `to` gets the successor of candidate c of row i.
template <typename Stored>
struct GatherSuccessors {
    op::DflashSelect args;
    Lists lists;
    MatrixView<float> to;

    __device__ void operator()(std::int64_t at) const {
        const auto row = static_cast<int>(at / to.cols);
        const std::int32_t token = token_of(args, lists, row / lists.wanted, row % lists.wanted);
        to.data[at] = Stored::at(args.successor.row(token), at % to.cols);
    }
};

// Row 0 of `to` gets the predecessor of the anchor, row 1 + i * K + c that of candidate c of row i.
template <typename Stored>
struct GatherPredecessors {
    op::DflashSelect args;
    Lists lists;
    MatrixView<float> to;

    __device__ void operator()(std::int64_t at) const {
        const auto row = static_cast<int>(at / to.cols);
        const std::int32_t token =
            row == 0 ? (args.anchor_at == nullptr ? args.anchor : *args.anchor_at)
                     : token_of(args, lists, (row - 1) / lists.wanted, (row - 1) % lists.wanted);
        to.data[at] = Stored::at(args.predecessor.row(token), at % to.cols);
    }
};

// What the walk reads.
struct Walk {
    op::DflashSelect args;
    Lists lists;
    MatrixView<float> hidden;       // [n, R]
    MatrixView<float> successor;    // [n * K, R]
    MatrixView<float> predecessor;  // [1 + n * K, R]
};

// Scores of the candidates of row i after the token with predecessor `from`, a warp a candidate.
__device__ void score(const Walk& walk, std::int64_t i, const float* from, float* scores) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int k = walk.lists.wanted;
    const float* hidden = walk.hidden.row(i);
    for (int c = static_cast<int>(threadIdx.x) / kWarp; c < k; c += kWarps) {
        const float* to = walk.successor.row(i * k + c);
        float sum = 0.0f;
        for (std::int64_t m = lane; m < walk.hidden.cols; m += kWarp) {
            sum = __fmaf_rn(from[m] * hidden[m], to[m], sum);
        }
        sum = warp_sum(sum);
        if (lane == 0) scores[c] = walk.lists.at(i, 0)[c].logit + sum;
    }
}

// The first of the largest scores; -1 where one is not finite.
__device__ int best_of(const float* scores, int k) {
    int pick = 0;
    for (int c = 0; c < k; ++c) {
        if (!(fabsf(scores[c]) < INFINITY)) return -1;
        if (scores[c] > scores[pick]) pick = c;
    }
    return pick;
}

// The walk, by one block of threads.
__global__ void __launch_bounds__(kThreads) walk_rows(Walk walk) {
    follow_earlier_kernels();
    __shared__ float scores[op::kDflashCandidatesMax];
    __shared__ int pick;
    const op::DflashSelect& args = walk.args;
    const auto thread = static_cast<int>(threadIdx.x);
    const int k = walk.lists.wanted;
    const std::int64_t n = args.logits.rows;
    std::int64_t from = 0;  // row of predecessors
    std::int64_t i = 0;
    for (; i < n && walk.lists.finite[i] != 0; ++i) {
        score(walk, i, walk.predecessor.row(from), scores);
        __syncthreads();
        if (thread == 0) pick = best_of(scores, k);
        __syncthreads();
        if (pick < 0) break;
        from = 1 + i * k + pick;
        if (thread < k) {
            const std::int32_t token = token_of(args, walk.lists, i, thread);
            args.candidates.row(i)[thread] = token;
            args.scores.row(i)[thread] = scores[thread];
            if (thread == pick) args.path[i] = token;
        }
        if (thread == 0) {
            float sum = 0.0f;
            for (int c = 0; c < k; ++c) sum += expf(scores[c] - scores[pick]);
            args.confidence[i] = 1.0f / sum;
        }
        __syncthreads();
    }
    if (thread == 0) *args.rows = static_cast<std::int32_t>(i);
    for (; i < n; ++i) {
        if (thread < k) {
            args.candidates.row(i)[thread] = -1;
            args.scores.row(i)[thread] = 0.0f;
        }
        if (thread == 0) {
            args.path[i] = -1;
            args.confidence[i] = 0.0f;
        }
    }
}

void check(const op::DflashSelect& args) {
    const std::int64_t n = args.logits.rows;
    const std::int64_t k = args.candidates.cols;
    STRATA_CHECK(args.hidden.rows == n && args.candidates.rows == n && args.scores.rows == n);
    STRATA_CHECK(args.path.size == n && args.confidence.size == n && args.rows != nullptr);
    STRATA_CHECK(args.scores.cols == k && k >= 1 && k <= op::kDflashCandidatesMax);
    STRATA_CHECK(k <= args.logits.cols);
    STRATA_CHECK(args.token_of_row.empty() || args.token_of_row.size == args.logits.cols);
    STRATA_CHECK(args.predecessor.cols == args.projection.rows);
    STRATA_CHECK(args.successor.cols == args.projection.rows);
}

Lists make_lists(Queue& queue, std::int64_t rows, std::int64_t lists, std::int64_t wanted) {
    return {queue.take<Best>(rows * lists * wanted), queue.take<int>(rows * lists),
            static_cast<int>(lists), static_cast<int>(wanted)};
}

}  // namespace

void dflash_select(const op::DflashSelect& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const std::int64_t n = args.logits.rows;
    const std::int64_t k = args.candidates.cols;
    const std::int64_t rank = args.projection.rows;
    const std::int64_t pieces = (args.logits.cols + kPieceLogits - 1) / kPieceLogits;
    const Lists of_pieces = make_lists(own, n, pieces, k);
    const Walk walk{args, make_lists(own, n, 1, k), own.matrix(n, rank), own.matrix(n * k, rank),
                    own.matrix(1 + n * k, rank)};
    if (n > 0) {
        project(own, args.hidden, args.projection, walk.hidden);
        const auto rows = static_cast<unsigned>(n);
        launch_dependent(own, {dim3(static_cast<unsigned>(pieces), rows), kThreads},
                         choose_of_pieces, args.logits, of_pieces);
        launch_dependent(own, {dim3(rows), kThreads}, choose_of_lists, of_pieces, walk.lists);
        with_stored(args.successor.type, [&](auto stored) {
            for_each(own, walk.successor.size(),
                     GatherSuccessors<decltype(stored)>{args, walk.lists, walk.successor});
        });
        with_stored(args.predecessor.type, [&](auto stored) {
            for_each(own, walk.predecessor.size(),
                     GatherPredecessors<decltype(stored)>{args, walk.lists, walk.predecessor});
        });
    }
    launch_dependent(own, {dim3(1), kThreads}, walk_rows, walk);
}

}  // namespace strata::cuda
