// Bounded by reading the logits of every row once, for their candidates. The score of each after
// each of the row before is made at once; the walk, by one block of threads, only looks them up.
#include <algorithm>

#include "backend/cuda/choose.cuh"
#include "backend/cuda/intrinsics.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/project.h"
#include "backend/cuda/stored.cuh"
#include "base/check.h"
#include "base/philox.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kWalkThreads = 64;  // one a candidate
static_assert(op::kDflashCandidatesMax <= op::kCandidatesMax);
static_assert(op::kDflashCandidatesMax <= kWalkThreads);

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

// What the walk reads.
struct Walk {
    op::DflashSelect args;
    Lists lists;
    MatrixView<float> hidden;     // [n, R]
    MatrixView<float> successor;  // [n * K, R]
    float* scores;                // [n, K, K]: of candidate c after candidate a of the row before
    int* counts;                  // [n, K]: how often the candidate is penalized for at row 0

    __device__ std::int64_t at(std::int64_t i, int a, int c) const {
        return (i * lists.wanted + a) * lists.wanted + c;
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

// Block (candidate, row): a warp takes a token before it at a time.
template <typename Stored>
__global__ void __launch_bounds__(kThreads) score_candidates(const __grid_constant__ Walk walk) {
    follow_earlier_kernels();
    const op::DflashSelect& args = walk.args;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const auto c = static_cast<int>(blockIdx.x);
    const std::int64_t i = blockIdx.y;
    const int k = walk.lists.wanted;
    const float* hidden = walk.hidden.row(i);
    const float* to = walk.successor.row(i * k + c);
    const int before = i == 0 ? 1 : k;
    for (int a = static_cast<int>(threadIdx.x) / kWarp; a < before; a += kWarps) {
        const std::int32_t token = i > 0 ? token_of(args, walk.lists, i - 1, a)
                                   : args.anchor_at != nullptr ? *args.anchor_at
                                                               : args.anchor;
        const std::byte* from = args.predecessor.row(token);
        float sum = 0.0f;
#pragma unroll 4
        for (std::int64_t m = lane; m < walk.hidden.cols; m += kWarp) {
            sum = __fmaf_rn(Stored::at(from, m) * hidden[m], to[m], sum);
        }
        sum = warp_sum(sum);
        if (lane == 0) walk.scores[walk.at(i, a, c)] = walk.lists.at(i, 0)[c].logit + sum;
    }
    if (args.rule == nullptr) return;
    const int count = count_penalized(args, token_of(args, walk.lists, i, c));
    if (threadIdx.x == 0) walk.counts[i * k + c] = count;
}

// The candidates of one row, one a thread; threads without one take part.
struct Candidates {
    int own;    // the thread's
    int count;  // K
    std::int32_t token;
    float score;

    __device__ bool is_one() const { return own < count; }
};

// Which candidate the block agrees on, of those that threads propose; -1: none.
template <typename Value>
__device__ int agree(const Candidates& candidates, bool proposed, Value value, int rank) {
    __shared__ BestOf<Value> scratch[kWalkThreads / kWarp];
    __shared__ int chosen;
    if (threadIdx.x == 0) chosen = -1;
    const BestOf<Value> best =
        best_of_block<kWalkThreads>(BestOf<Value>{value, proposed ? rank : -1}, scratch);
    if (proposed && best.row == rank) chosen = candidates.own;
    __syncthreads();
    const int result = chosen;
    __syncthreads();
    return result;
}

// How often row i penalizes for the thread's candidate.
__device__ int count_at(const Walk& walk, std::int64_t i, const Candidates& candidates) {
    const op::DflashSelect& args = walk.args;
    int count = walk.counts[i * candidates.count + candidates.own];
    for (std::int64_t j = 0; j < i; ++j) {
        const std::int32_t leaves = args.rule->leaves[j];
        count += args.path[j] == candidates.token ? 1 : 0;
        count -= (leaves < -1 ? args.path[-2 - leaves] : leaves) == candidates.token ? 1 : 0;
    }
    return count;
}

// Whether top-k and top-p keep the thread's candidate; `scaled` falls with its rank among them.
__device__ bool passes(const op::DrawRule& rule, const Candidates& candidates, double scaled) {
    __shared__ double scales[kWalkThreads];
    __shared__ int tokens[kWalkThreads];
    __shared__ double weights[kWalkThreads];
    scales[candidates.own] = scaled;
    tokens[candidates.own] = candidates.token;
    __syncthreads();
    int rank = 0;
    for (int c = 0; c < candidates.count; ++c) {
        const bool tied = scales[c] == scaled && tokens[c] < candidates.token;
        rank += scales[c] > scaled || tied ? 1 : 0;
    }
    int kept = candidates.count;
    if (rule.top_k > 0 && rule.top_k < kept) kept = static_cast<int>(rule.top_k);
    if (candidates.is_one()) weights[rank] = exp(scaled);
    __syncthreads();
    bool passed = candidates.is_one() && rank < kept;
    if (passed && rule.top_p < 1) {
        double sum = 0.0;
        for (int r = 0; r < kept; ++r) sum += weights[r];
        double reached = 0.0;
        for (int r = 0; r < rank; ++r) reached += weights[r] / sum;
        passed = rank == 0 || reached < rule.top_p;
    }
    __syncthreads();
    return passed;
}

// The draw of row i, as the sampler makes it.
__device__ int draw_candidate(const Walk& walk, std::int64_t i, const Candidates& candidates) {
    const op::DrawRule& rule = *walk.args.rule;
    __shared__ BestOf<double> scratch[kWalkThreads / kWarp];
    double value = candidates.score;
    if (candidates.is_one()) {
        const int count = count_at(walk, i, candidates);
        if (count > 0) value = op::penalized_logit(rule, value, count);
    }
    if (rule.temperature == 0) {
        return agree(candidates, candidates.is_one(), value, candidates.token);
    }
    const double largest =
        best_of_block<kWalkThreads>(BestOf<double>{value, candidates.is_one() ? 0 : -1}, scratch)
            .logit;
    const double scaled = (value - largest) / rule.temperature;
    const bool kept = passes(rule, candidates, scaled) && scaled >= rule.lowest;
    double score = 0.0;
    if (kept) {
        const double u = uniform(rule.seed, static_cast<std::uint64_t>(rule.position + i),
                                 static_cast<std::uint32_t>(candidates.token));
        score = scaled - log(-log(u));
    }
    return agree(candidates, kept, score, candidates.token);
}

// Row i after candidate `before` of the row before: which candidate it picks, -1 where a score is
// not finite.
__device__ int walk_row(const Walk& walk, std::int64_t i, int before) {
    __shared__ float scratch[kWalkThreads / kWarp];
    const op::DflashSelect& args = walk.args;
    Candidates own{static_cast<int>(threadIdx.x), walk.lists.wanted, -1, 0.0f};
    if (own.is_one()) {
        own.token = token_of(args, walk.lists, i, own.own);
        own.score = walk.scores[walk.at(i, before, own.own)];
    }
    const bool broken = own.is_one() && !(fabsf(own.score) < INFINITY);
    if (agree(own, broken, 0.0f, own.own) >= 0) return -1;
    const int best = agree(own, own.is_one(), own.score, own.own);
    const int pick = args.rule == nullptr ? best : draw_candidate(walk, i, own);
    const float largest = walk.scores[walk.at(i, before, best)];
    const float weight = own.is_one() ? expf(own.score - largest) : 0.0f;
    const float sum = block_sum<kWalkThreads>(weight, scratch);
    if (own.is_one()) {
        args.candidates.row(i)[own.own] = own.token;
        args.scores.row(i)[own.own] = own.score;
    }
    if (own.own == pick) {
        args.path[i] = own.token;
        args.confidence[i] = weight / sum;
    }
    __syncthreads();
    return pick;
}

// The walk, by one block of threads.
__global__ void __launch_bounds__(kWalkThreads) walk_rows(const __grid_constant__ Walk walk) {
    follow_earlier_kernels();
    const op::DflashSelect& args = walk.args;
    const auto thread = static_cast<int>(threadIdx.x);
    const std::int64_t n = args.logits.rows;
    std::int64_t i = 0;
    for (int pick = 0; i < n && walk.lists.finite[i] != 0; ++i) {
        pick = walk_row(walk, i, pick);
        if (pick < 0) break;
    }
    if (thread == 0) *args.rows = static_cast<std::int32_t>(i);
    for (; i < n; ++i) {
        if (thread < walk.lists.wanted) {
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
    const Walk walk{args,
                    choose_best(own, args.logits, static_cast<int>(k)),
                    own.matrix(n, rank),
                    own.matrix(n * k, rank),
                    own.take<float>(n * k * k),
                    own.take<int>(n * k)};
    if (n > 0) {
        project(own, args.hidden, args.projection, walk.hidden);
        with_stored(args.successor.type, [&](auto stored) {
            for_each(own, walk.successor.size(),
                     GatherSuccessors<decltype(stored)>{args, walk.lists, walk.successor});
        });
        const dim3 blocks(static_cast<unsigned>(k), static_cast<unsigned>(n));
        with_stored(args.predecessor.type, [&](auto stored) {
            launch_dependent(own, {blocks, kThreads}, score_candidates<decltype(stored)>, walk);
        });
    }
    launch_dependent(own, {dim3(1), kWalkThreads}, walk_rows, walk);
}

}  // namespace strata::cuda
