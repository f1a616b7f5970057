// The largest logits of rows.
#pragma once

#include "backend/cuda/best.cuh"
#include "backend/cuda/queue.h"
#include "op/pick.h"

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

// A number that is larger for what comes before; from kSomeKey on for all that there is.
__device__ inline std::uint64_t key_of(const Best& best) {
    const unsigned bits = __float_as_uint(best.logit + 0.0f);  // both zeros are equal
    const unsigned order = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
    return std::uint64_t{order} << 32 | ~static_cast<unsigned>(best.row);
}
inline constexpr std::uint64_t kSomeKey = std::uint64_t{1} << 32;

// How many of the keys are larger.
__device__ inline int rank_of(std::uint64_t key, const std::uint64_t* keys, int count) {
    int rank = 0;
#pragma unroll 8
    for (int i = 0; i < count; ++i) rank += keys[i] > key ? 1 : 0;
    return rank;
}

// The key of the block's thread that is number `wanted` of all threads by theirs, which differ; at
// most `wanted` threads have one that is not less, and of all that they hold, those that are wanted
// are not less. Where fewer threads have anything: kSomeKey.
__device__ inline std::uint64_t bound_of_keys(std::uint64_t key, int wanted) {
    __shared__ std::uint64_t keys[kLogitThreads];
    __shared__ std::uint64_t foremost[kLogitThreads];  // those of each warp that may be meant
    __shared__ std::uint64_t bound;
    const auto thread = static_cast<int>(threadIdx.x);
    const int warp = thread / kWarp;
    const int each = min(wanted, kWarp);
    if (thread == 0) bound = kSomeKey;
    keys[thread] = key;
    __syncwarp();
    const int rank = rank_of(key, keys + warp * kWarp, kWarp);
    if (rank < each) foremost[warp * each + rank] = key;
    __syncthreads();
    const int count = kLogitWarps * each;
    if (thread < count) {
        const std::uint64_t own = foremost[thread];
        if (own >= kSomeKey && rank_of(own, foremost, count) == wanted - 1) bound = own;
    }
    __syncthreads();
    return bound;
}

// The best `wanted` of what the threads hold, best first, to `chosen`. Few threads hold one of
// them, so all that those hold and that may be one is put in order. A barrier follows before
// the next call.
__device__ inline void choose(const Best (&held)[kLogitsHeld], int wanted, Best* chosen) {
    __shared__ Best kept[op::kCandidatesMax * kLogitsHeld];
    __shared__ int count;
    const auto thread = static_cast<int>(threadIdx.x);
    auto own = static_cast<std::uint64_t>(thread);
#pragma unroll
    for (const Best& one : held) {
        const std::uint64_t key = one.row < 0 ? 0 : key_of(one);
        own = key > own ? key : own;
    }
    if (thread == 0) count = 0;
    const std::uint64_t bound = bound_of_keys(own, wanted);
    if (own >= bound) {
#pragma unroll
        for (const Best& one : held) {
            if (one.row >= 0 && key_of(one) >= bound) kept[atomicAdd(&count, 1)] = one;
        }
    }
    __syncthreads();
    for (int i = thread; i < max(count, wanted); i += kLogitThreads) {
        if (i >= count) {
            chosen[i] = {0.0f, -1};
            continue;
        }
        int rank = 0;
        for (int j = 0; j < count; ++j) rank += kept[j].before(kept[i]) ? 1 : 0;
        if (rank < wanted) chosen[rank] = kept[i];
    }
}

Lists make_lists(Queue& queue, std::int64_t rows, std::int64_t lists, std::int64_t wanted);

// One list a row of its lists.
Lists best_of_lists(Queue& queue, const Lists& lists, std::int64_t rows);

// The `wanted` best finite logits of each row, at most op::kCandidatesMax, as one list a row in the
// op's memory.
Lists choose_best(Queue& queue, MatrixView<const float> logits, int wanted);

}  // namespace strata::cuda
