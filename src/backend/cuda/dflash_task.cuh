// A block of threads in a draft's attention: whose queries it has, and how it attends to the rows
// of the draft themselves.
#pragma once

#include "backend/cuda/dflash_attend.cuh"
#include "backend/cuda/piece.cuh"

namespace strata::cuda {

inline constexpr int kAttendWarps = kPieceThreads / kWarp;
static_assert(kEntries == kPiece);

// What a block works on: block (0 for rows or 1 + turn for cells, key head and set of heads, row).
struct Task {
    int g;
    int from;  // first head of the group
    int count;
    int row;

    __device__ static Task of(const Attend& attend) {
        const int from = static_cast<int>(blockIdx.y) % attend.sets() * kQueriesOfBlock;
        return {.g = static_cast<int>(blockIdx.y) / attend.sets(),
                .from = from,
                .count = min(kQueriesOfBlock, attend.group - from),
                .row = static_cast<int>(blockIdx.z)};
    }
    __device__ std::int64_t at(const Attend& attend, int part) const {
        return attend.at(g, part, row * attend.group + from);
    }
};

__device__ inline bool has_rows() { return blockIdx.x == 0; }
// The first piece of a block that has cells.
__device__ inline int first_piece() { return static_cast<int>(blockIdx.x) - 1; }

// queries[place(q, c)] = value c of head q of a task, normed and turned; zeros of those that are
// not there. `held` is memory of a head a warp.
template <typename TurnAt, typename Place>
__device__ void bring_queries(const Attend& attend, const Task& task, TurnAt turn_at, float* held,
                              Place place, float* queries) {
    const int d = attend.shape.head_dim;
    const float* row = attend.rows.query.row(task.row) + (task.g * attend.group + task.from) * d;
    for (int q = own_warp(); q < kQueriesOfBlock; q += kAttendWarps) {
        if (q >= task.count) {
            for (int c = own_lane(); c < d; c += kWarp) queries[place(q, c)] = 0.0f;
            continue;
        }
        norm_and_turn(row + q * d, d, attend.query_norm, attend.epsilon, attend.shape.rotary_pairs,
                      turn_at, held + own_warp() * d,
                      [&](int c, float value) { queries[place(q, c)] = value; });
    }
}

// The scores of a task's queries with row j of the block, by a warp.
template <typename Place>
__device__ void score_row(const Attend& attend, const Task& task, int j, const float* queries,
                          Place place, float* held, float* scores) {
    const int d = attend.shape.head_dim;
    norm_and_turn(attend.rows.key.row(j) + task.g * d, d, attend.key_norm, attend.epsilon,
                  attend.turns(j), held, [&](int c, float value) { held[c] = value; });
    float sums[kQueriesOfBlock] = {};
    for (int c = own_lane(); c < d; c += kWarp) {
#pragma unroll
        for (int q = 0; q < kQueriesOfBlock; ++q) {
            sums[q] = __fmaf_rn(queries[place(q, c)], held[c], sums[q]);
        }
    }
#pragma unroll
    for (int q = 0; q < kQueriesOfBlock; ++q) {
        const float sum = warp_sum(sums[q]);
        if (own_lane() == 0) scores[q] = sum;
    }
    __syncwarp();
}

// The parts that are rows of the block. `scores` is memory of kPiece * kQueriesOfBlock values.
template <typename Place>
__device__ void attend_rows(const Attend& attend, const Task& task, const float* queries,
                            Place place, float* held, float* scores) {
    const int d = attend.shape.head_dim;
#pragma unroll 1
    for (int part = 0; part < attend.own_parts(); ++part) {
        const int begin = part * kPiece;
        const int rows = min(kPiece, attend.count - begin);
        for (int e = own_warp(); e < kPiece; e += kAttendWarps) {
            float* own = scores + e * kQueriesOfBlock;
            if (e < rows && attend.sees_row(task.row, begin + e)) {
                score_row(attend, task, begin + e, queries, place, held + own_warp() * d, own);
            } else if (own_lane() < kQueriesOfBlock) {
                own[own_lane()] = -INFINITY;
            }
        }
        __syncthreads();
        const std::int64_t at = task.at(attend, part);
        weigh(scores, kQueriesOfBlock, task.count, 1.0f / sqrtf(static_cast<float>(d)),
              attend.largest + at, attend.sum + at);
        __syncthreads();
        for (int c = static_cast<int>(threadIdx.x); c < d; c += kPieceThreads) {
            const float* value = attend.rows.value.row(begin) + task.g * d + c;
            float sums[kQueriesOfBlock] = {};
#pragma unroll 4
            for (int e = 0; e < rows; ++e) {
                const float own = value[e * attend.rows.value.cols];
#pragma unroll
                for (int q = 0; q < kQueriesOfBlock; ++q) {
                    sums[q] = __fmaf_rn(scores[e * kQueriesOfBlock + q], own, sums[q]);
                }
            }
#pragma unroll
            for (int q = 0; q < kQueriesOfBlock; ++q) {
                if (q < task.count) attend.values[(at + q) * d + c] = sums[q];
            }
        }
        __syncthreads();
    }
}

}  // namespace strata::cuda
