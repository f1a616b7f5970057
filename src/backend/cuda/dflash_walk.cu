// Bounded by its own latency: one block of threads goes from row to row, each time with the scores
// of a row's candidates after the one that was picked before.
#include "backend/cuda/dflash_select.cuh"
#include "backend/cuda/launch.cuh"
#include "base/philox.h"

namespace strata::cuda {
namespace {

constexpr int kWalkThreadsMost = 64;  // one a candidate
static_assert(op::kDflashCandidatesMax <= kWalkThreadsMost);
// Of scores that the walk has in shared memory, where they are no more.
constexpr std::int64_t kScoreBytesMost = std::int64_t{32} << 10;

__host__ __device__ inline bool brings_scores(const Walk& walk) {
    return walk.pairs() * std::int64_t{sizeof(float)} <= kScoreBytesMost;
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
template <int kWalkThreads, typename Value>
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
template <int kWalkThreads>
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
template <int kWalkThreads>
__device__ int draw_candidate(const Walk& walk, std::int64_t i, const Candidates& candidates) {
    const op::DrawRule& rule = *walk.args.rule;
    __shared__ BestOf<double> scratch[kWalkThreads / kWarp];
    double value = candidates.score;
    if (candidates.is_one()) {
        const int count = count_at(walk, i, candidates);
        if (count > 0) value = op::penalized_logit(rule, value, count);
    }
    if (rule.temperature == 0) {
        return agree<kWalkThreads>(candidates, candidates.is_one(), value, candidates.token);
    }
    const double largest =
        best_of_block<kWalkThreads>(BestOf<double>{value, candidates.is_one() ? 0 : -1}, scratch)
            .logit;
    const double scaled = (value - largest) / rule.temperature;
    const bool kept = passes<kWalkThreads>(rule, candidates, scaled) && scaled >= rule.lowest;
    double score = 0.0;
    if (kept) {
        const double u = uniform(rule.seed, static_cast<std::uint64_t>(rule.position + i),
                                 static_cast<std::uint32_t>(candidates.token));
        score = scaled - log(-log(u));
    }
    return agree<kWalkThreads>(candidates, kept, score, candidates.token);
}

// What the walk has brought before it begins.
struct Brought {
    const float* scores;  // Walk::scores, there or in shared memory
    const int* tokens;    // [n, K]

    template <int kWalkThreads>
    __device__ static int* tokens_early(const Walk& walk) {
        auto* const tokens = reinterpret_cast<int*>(shared_bytes());
        const int k = walk.lists.wanted;
        for (int at = static_cast<int>(threadIdx.x); at < walk.args.logits.rows * k;
             at += kWalkThreads) {
            tokens[at] = token_of(walk.args, walk.lists, at / k, at % k);
        }
        return tokens;
    }
    template <int kWalkThreads>
    __device__ static Brought with_scores(const Walk& walk, int* tokens) {
        if (!brings_scores(walk)) return {walk.scores, tokens};
        auto* const scores =
            reinterpret_cast<float*>(tokens + walk.args.logits.rows * walk.lists.wanted);
#pragma unroll 8
        for (std::int64_t at = threadIdx.x; at < walk.pairs(); at += kWalkThreads) {
            scores[at] = walk.scores[at];
        }
        return {scores, tokens};
    }
};

// Row i after candidate `before` of the row before: which candidate it picks, -1 where a score is
// not finite.
template <int kWalkThreads>
__device__ int walk_row(const Walk& walk, const Brought& brought, std::int64_t i, int before) {
    __shared__ float scratch[kWalkThreads / kWarp];
    const op::DflashSelect& args = walk.args;
    Candidates own{static_cast<int>(threadIdx.x), walk.lists.wanted, -1, 0.0f};
    if (own.is_one()) {
        own.token = brought.tokens[i * own.count + own.own];
        own.score = brought.scores[walk.at(i, before, own.own)];
    }
    const bool broken = own.is_one() && !(fabsf(own.score) < INFINITY);
    if (agree<kWalkThreads>(own, broken, 0.0f, own.own) >= 0) return -1;
    const int best = agree<kWalkThreads>(own, own.is_one(), own.score, own.own);
    const int pick = args.rule == nullptr ? best : draw_candidate<kWalkThreads>(walk, i, own);
    const float largest = brought.scores[walk.at(i, before, best)];
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

// The walk, by one block of threads, a warp where that is enough.
template <int kWalkThreads>
__global__ void __launch_bounds__(kWalkThreads) walk_rows(const __grid_constant__ Walk walk) {
    const op::DflashSelect& args = walk.args;
    const auto thread = static_cast<int>(threadIdx.x);
    const std::int64_t n = args.logits.rows;
    int* const tokens = Brought::tokens_early<kWalkThreads>(walk);
    std::int64_t whole = 0;
    while (whole < n && load_settled(walk.lists.finite + whole) != 0) ++whole;
    follow_earlier_kernels();
    const Brought brought = Brought::with_scores<kWalkThreads>(walk, tokens);
    __syncthreads();
    std::int64_t i = 0;
    for (int pick = 0; i < whole; ++i) {
        pick = walk_row<kWalkThreads>(walk, brought, i, pick);
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

template <int kWalkThreads>
void launch_by(Queue& queue, const Walk& walk) {
    const std::int64_t tokens = walk.args.logits.rows * walk.lists.wanted;
    const std::int64_t values = tokens + (brings_scores(walk) ? walk.pairs() : 0);
    launch_dependent(queue,
                     {dim3(1), kWalkThreads, static_cast<std::size_t>(values) * sizeof(float)},
                     walk_rows<kWalkThreads>, walk);
}

}  // namespace

void launch_walk(Queue& queue, const Walk& walk) {
    if (walk.lists.wanted <= kWarp) return launch_by<kWarp>(queue, walk);
    launch_by<kWalkThreadsMost>(queue, walk);
}

}  // namespace strata::cuda
