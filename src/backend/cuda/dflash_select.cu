// Bounded by reading the logits of every row once, for their candidates. One block of threads walks
// the rows, which follow from one another, with all that it may need of the tables at hand.
#include <algorithm>

#include "backend/cuda/choose.cuh"
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
static_assert(op::kDflashCandidatesMax <= op::kCandidatesMax);

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

}  // namespace

void dflash_select(const op::DflashSelect& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const std::int64_t n = args.logits.rows;
    const std::int64_t k = args.candidates.cols;
    const std::int64_t rank = args.projection.rows;
    const Walk walk{args, choose_best(own, args.logits, static_cast<int>(k)), own.matrix(n, rank),
                    own.matrix(n * k, rank), own.matrix(1 + n * k, rank)};
    if (n > 0) {
        project(own, args.hidden, args.projection, walk.hidden);
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
