// Bounded by reading the logits of every row once, for their candidates. The score of each after
// each of the row before is made at once; the walk only looks them up. Candidates are there before
// hidden is projected, so that what is read for them is on its way then.
#include "backend/cuda/dflash_select.cuh"
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

__device__ int count_penalized(const op::DflashSelect& args, std::int32_t token) {
    __shared__ int sums[kWarps];
    int sum = 0;
    for (std::int64_t p = threadIdx.x; p < args.rule->penalized; p += kThreads) {
        if (args.penalized[p].token == token) sum += args.penalized[p].count;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = sum;
    __syncthreads();
    sum = 0;
    for (const int one : sums) sum += one;
    return sum;
}

// The token that candidate a of the row before has; before row 0 the anchor.
__device__ std::int32_t token_before(const Walk& walk, std::int64_t i, int a) {
    const op::DflashSelect& args = walk.args;
    if (i > 0) return token_of(args, walk.lists, i - 1, a);
    return args.anchor_at != nullptr ? load_settled(args.anchor_at) : args.anchor;
}

// By a warp.
__device__ void prefetch_row(const op::Weight& table, std::int32_t token) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (std::int64_t at = lane * kLineBytes; at < table.row_bytes; at += kWarp * kLineBytes) {
        prefetch(table.row(token) + at);
    }
}

// Block (candidate, row): a warp takes a token before it at a time.
template <typename Stored>
__global__ void __launch_bounds__(kThreads) score_candidates(const __grid_constant__ Walk walk) {
    const op::DflashSelect& args = walk.args;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const auto c = static_cast<int>(blockIdx.x);
    const std::int64_t i = blockIdx.y;
    const int k = walk.lists.wanted;
    const int before = i == 0 ? 1 : k;
    const std::int32_t token = token_of(args, walk.lists, i, c);
    if (warp == 0) prefetch_row(args.successor, token);
    for (int a = warp; a < before; a += kWarps) {
        prefetch_row(args.predecessor, token_before(walk, i, a));
    }
    follow_earlier_kernels();
    auto* const both = reinterpret_cast<float*>(shared_bytes());  // hidden times successor
    const std::byte* successor = args.successor.row(token);
    for (std::int64_t m = threadIdx.x; m < walk.hidden.cols; m += kThreads) {
        const float own = walk.successor.data != nullptr ? walk.successor.row(i * k + c)[m]
                                                         : Stored::at(successor, m);
        both[m] = walk.hidden.row(i)[m] * own;
    }
    __syncthreads();
    for (int a = warp; a < before; a += kWarps) {
        const std::byte* from = args.predecessor.row(token_before(walk, i, a));
        float sum = 0.0f;
#pragma unroll 8
        for (std::int64_t m = lane; m < walk.hidden.cols; m += kWarp) {
            sum = __fmaf_rn(Stored::at(from, m), both[m], sum);
        }
        sum = warp_sum(sum);
        if (lane == 0) walk.scores[walk.at(i, a, c)] = walk.lists.at(i, 0)[c].logit + sum;
    }
    if (args.rule == nullptr) return;
    const int count = count_penalized(args, token);
    if (threadIdx.x == 0) walk.counts[i * k + c] = count;
}

void check(const op::DflashSelect& args) {
    const std::int64_t n = args.logits.rows;
    const std::int64_t k = args.candidates.cols;
    STRATA_CHECK(args.hidden.rows == n && args.candidates.rows == n && args.scores.rows == n);
    STRATA_CHECK(args.path.size == n && args.confidence.size == n && args.rows != nullptr);
    STRATA_CHECK(args.scores.cols == k && k >= 1 && k <= op::kDflashCandidatesMax);
    STRATA_CHECK(k <= args.logits.cols);
    STRATA_CHECK(args.token_of_row.empty() || args.token_of_row.size == args.logits.cols);
    STRATA_CHECK(args.rule == nullptr || n <= op::kDrawRowsMax);
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
    const bool alike = args.successor.type == args.predecessor.type;
    const Walk walk{args,
                    choose_best(own, args.logits, static_cast<int>(k)),
                    own.matrix(n, rank),
                    alike ? MatrixView<float>{} : own.matrix(n * k, rank),
                    own.take<float>(n * k * k),
                    own.take<int>(n * k)};
    if (n > 0) {
        if (!alike) {
            with_stored(args.successor.type, [&](auto stored) {
                for_each(own, walk.successor.size(),
                         GatherSuccessors<decltype(stored)>{args, walk.lists, walk.successor});
            });
        }
        project(own, args.hidden, args.projection, walk.hidden);
        const dim3 blocks(static_cast<unsigned>(k), static_cast<unsigned>(n));
        with_stored(args.predecessor.type, [&](auto stored) {
            launch_dependent(own,
                             {blocks, kThreads, static_cast<std::size_t>(rank) * sizeof(float)},
                             score_candidates<decltype(stored)>, walk);
        });
    }
    launch_walk(own, walk);
}

}  // namespace strata::cuda
