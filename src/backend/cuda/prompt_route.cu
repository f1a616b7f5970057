// Small next to the products: bound by launches. Members of an expert lie in any order, which no
// result depends on.
#include "backend/cuda/intrinsics.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/prompt_route.h"
#include "base/check.h"

namespace strata::cuda::prompt {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// Ranks logits: the larger above, NaN below all numbers, of equal ones the lower expert above.
__device__ std::uint64_t rank_of(float logit, int expert) {
    const unsigned bits = __float_as_uint(logit + 0.0f);  // one zero
    unsigned order = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
    if (logit != logit) order = 0;
    return std::uint64_t{order} << 32 | (0xffffffffu - static_cast<unsigned>(expert));
}

__device__ std::uint64_t warp_largest(std::uint64_t rank) {
    for (int by = kWarp / 2; by > 0; by /= 2) {
        const std::uint64_t other = __shfl_xor_sync(kAllLanes, rank, by);
        rank = other > rank ? other : rank;
    }
    return rank;
}

struct Choose {
    MatrixView<const float> logits;
    Routing to;
    std::int32_t* count;  // [E]
    std::int64_t experts;
    float factor;
    float scale_factor;
    bool renormalize;
};

// A warp a row.
__global__ void __launch_bounds__(kThreads) choose(Choose work) {
    const std::int64_t t =
        std::int64_t{blockIdx.x} * kWarps + static_cast<int>(threadIdx.x) / kWarp;
    if (t >= work.logits.rows) return;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const float* logits = work.logits.row(t);
    const auto experts = static_cast<int>(work.experts);
    const auto active = static_cast<int>(work.to.chosen.cols);
    std::int32_t* chosen = work.to.chosen.row(t);
    float* share = work.to.share.row(t);
    std::uint64_t last = ~std::uint64_t{0};
    float largest = 0.0f;
    float sum = 0.0f;
    for (int j = 0; j < active; ++j) {
        std::uint64_t best = 0;
        for (int e = lane; e < experts; e += kWarp) {
            const std::uint64_t rank = rank_of(logits[e] * work.factor, e);
            if (rank < last && rank > best) best = rank;
        }
        last = warp_largest(best);
        const auto e = static_cast<int>(0xffffffffu - static_cast<unsigned>(last));
        const float logit = logits[e] * work.factor;
        if (j == 0) largest = logit;
        const float part = expf(logit - largest);
        sum += part;
        if (lane == 0) {
            chosen[j] = e;
            share[j] = part;
            atomicAdd(&work.count[e], 1);
        }
    }
    if (!work.renormalize) {
        sum = 0.0f;
        for (int e = lane; e < experts; e += kWarp) sum += expf(logits[e] * work.factor - largest);
        sum = warp_sum(sum);
    }
    if (lane != 0) return;
    for (int j = 0; j < active; ++j) share[j] /= sum;
    work.to.shared_share[t] = sigmoid(logits[experts] * work.scale_factor);
}

// Sums of all before, for a thread each of a block; `shared` is of kThreads values.
__device__ int sum_before(int value, int* shared) {
    const auto thread = static_cast<int>(threadIdx.x);
    shared[thread] = value;
    __syncthreads();
    for (int by = 1; by < kThreads; by *= 2) {
        const int other = thread >= by ? shared[thread - by] : 0;
        __syncthreads();
        shared[thread] += other;
        __syncthreads();
    }
    const int result = shared[thread] - value;
    __syncthreads();
    return result;
}

// One block: where each expert's members lie, and the tiles of all. Leaves in `next` what `first`
// says.
__global__ void __launch_bounds__(kThreads)
    list_groups(Routing to, const std::int32_t* count, std::int32_t* next, int experts) {
    __shared__ int scan[kThreads];
    const int each = (experts + kThreads - 1) / kThreads;
    const int begin = min(experts, static_cast<int>(threadIdx.x) * each);
    const int end = min(experts, begin + each);
    int members = 0;
    int tiles = 0;
    for (int e = begin; e < end; ++e) {
        members += count[e];
        tiles += (count[e] + to.tile_rows - 1) / to.tile_rows;
    }
    int member = sum_before(members, scan);
    int tile = sum_before(tiles, scan);
    for (int e = begin; e < end; ++e) {
        to.first[e] = member;
        next[e] = member;
        for (int at = 0; at < count[e]; at += to.tile_rows) {
            to.tiles[tile++] = {e, member + at};
        }
        member += count[e];
    }
    if (threadIdx.x == kThreads - 1) {
        to.first[experts] = member;
        *to.tile_count = tile;
    }
}

struct Clear {
    std::int32_t* count;
    __device__ void operator()(std::int64_t i) const { count[i] = 0; }
};

struct Place {
    Routing to;
    std::int32_t* next;

    __device__ void operator()(std::int64_t pair) const {
        const std::int32_t member = atomicAdd(&next[to.chosen.data[pair]], 1);
        to.row[member] = static_cast<std::int32_t>(pair / to.chosen.cols);
        to.member[pair] = member;
    }
};

}  // namespace

Routing route(Queue& queue, const op::Experts& args, MatrixView<const float> logits,
              int tile_rows) {
    const std::int64_t rows = logits.rows;
    const std::int64_t experts = args.router.rows;
    const std::int64_t pairs = rows * args.active;
    STRATA_CHECK(experts <= op::kExpertsMax && pairs <= INT32_MAX / 2);
    Routing to;
    to.chosen = args.chosen;
    if (to.chosen.empty()) {
        to.chosen = {queue.take<std::int32_t>(pairs), rows, args.active};
    }
    to.share = args.share.empty() ? queue.matrix(rows, args.active) : args.share;
    to.shared_share = queue.take<float>(rows);
    to.first = queue.take<std::int32_t>(experts + 1);
    to.row = queue.take<std::int32_t>(pairs);
    to.member = queue.take<std::int32_t>(pairs);
    to.tile_rows = tile_rows;
    to.tiles_max = pairs / tile_rows + std::min(experts, pairs);
    to.tiles = queue.take<GroupTile>(to.tiles_max);
    to.tile_count = queue.take<std::int32_t>(1);
    auto* count = queue.take<std::int32_t>(experts);
    auto* next = queue.take<std::int32_t>(experts);
    for_each(queue, experts, Clear{count});
    launch(queue, {dim3(static_cast<unsigned>((rows + kWarps - 1) / kWarps)), kThreads}, choose,
           Choose{logits, to, count, experts, args.router.factor, args.shared_scale.factor,
                  args.renormalize});
    launch(queue, {dim3(1), kThreads}, list_groups, to, count, next, static_cast<int>(experts));
    for_each(queue, pairs, Place{to, next});
    return to;
}

}  // namespace strata::cuda::prompt
