// Products of the rows of experts with weights of blocks, unpacked in the registers of the lanes
// that multiply with them.
//
// An expert has few rows of a prompt, so that unpacking its weights costs as much as multiplying
// with them: each weight is unpacked once for up to 96 rows, by the one lane that needs it, and
// never lies in shared memory. A step takes 128 columns. The four lanes that share a row of a
// tile on the tensor cores take a unit of 32 columns each, and of it four columns a product: which
// columns meet in a product is free, as long as the rows of x are read the same way. Bound by
// unpacking below about 60 rows an expert, by the tensor cores above.
#pragma once

#include "backend/cuda/multiply_experts.h"
#include "backend/cuda/tensor_core.cuh"
#include "backend/cuda/unpack_pairs.cuh"
#include "backend/cuda/warpgroup.cuh"

namespace strata::cuda::prompt {

struct UnpackedProduct {
    RoundedRows x{};
    const std::int32_t* index = nullptr;  // of the row of x that a member has; null: its own
    ExpertMatrices matrices{};
    // Null, or the addresses of a second matrix of the same type and shape: then the products are
    // those of eight rows of the first, eight of the second, in turn.
    const std::byte* const* turning = nullptr;
    const float* turning_factors = nullptr;
    std::int64_t row_bytes = 0;
    int rows = 0;  // of the products
    int blocks_across = 0;
    int row_blocks = 1;           // that a block of warpgroups goes through
    bool spreads_hidden = false;  // multiply_warpgroup.cuh
    Routing routing{};
    MatrixView<float> out{};  // of products with one matrix
    RoundedRows hidden{};     // of silu(first) * second
};

namespace unpacked {

inline constexpr int kThreads = 128;
inline constexpr int kWarpRows = 32;  // of the matrix
inline constexpr int kBlockRows = kThreads / kWarp * kWarpRows;
inline constexpr int kSpan = 4 * kUnit;  // columns of a step
inline constexpr int kSpanBytes = 2 * kSpan;
inline constexpr int kPieces = kSpanBytes / 16;
inline constexpr int kDepth = 3;  // steps of x in shared memory
inline constexpr int kStageBytes = kExpertTileRows * kSpanBytes;
inline constexpr int kSixteens = kExpertTileRows / 16;

// What a block makes: of the rows from `row` on of the expert's products the members from `member`
// on, `members` of them.
struct Job {
    int expert;
    int member;
    int members;
    int row;
};

__device__ inline bool find(const UnpackedProduct& work, Job& job) {
    const int tile = static_cast<int>(blockIdx.x) / work.blocks_across;
    if (tile >= *work.routing.tile_count) return false;
    const GroupTile group = work.routing.tiles[tile];
    job.expert = group.expert;
    job.member = group.member;
    job.members = min(kExpertTileRows, work.routing.first[group.expert + 1] - group.member);
    job.row = static_cast<int>(blockIdx.x) % work.blocks_across * kBlockRows;
    return true;
}

// The units of a lane: of rows g, g + 8, g + 16, g + 24 of the warp's, g = lane / 4.
template <quant::Type kType>
class Units {
  public:
    using Own = BlockUnits<kType>;
    using Pairs = UnitPairs<kType>;
    static constexpr int kRows = kWarpRows / 8;

    __device__ Units(const UnpackedProduct& work, const Job& job)
        : blocks_(static_cast<int>(work.matrices.cols / block_fields(kType).values)),
          units_(static_cast<int>(work.matrices.cols / kUnit)) {
        const int lane = static_cast<int>(threadIdx.x) % kWarp;
        const int first = job.row + static_cast<int>(threadIdx.x) / kWarp * kWarpRows + lane / 4;
        align_ = 16;
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            int r = first + 8 * i;
            const std::byte* const* at = work.matrices.at;
            if (work.turning != nullptr) {
                if (i % 2 != 0) at = work.turning;
                r = r / 16 * 8 + r % 8;
            }
            const std::byte* matrix = at[job.expert];
            align_ = min(align_, align_of(matrix, work.row_bytes));
            row_[i] = r < work.matrices.rows ? matrix + r * work.row_bytes : nullptr;
        }
    }
    __device__ void load(int step) {
        const int unit = unit_of(step);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            if (row_[i] == nullptr || unit >= units_) continue;
            Own::load(Planes<kType>{row_[i], blocks_, align_}, unit, raw_[i]);
        }
    }
    __device__ void decode(int step, const unsigned* table) {
        const int unit = unit_of(step);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            own_[i] = Pairs{};
            if (row_[i] == nullptr || unit >= units_) continue;
            own_[i].set(raw_[i], unit, table);
        }
    }
    // Of rows 16 m .. 16 m + 15 the columns of product s, 0 <= s < 8.
    __device__ void tile(int m, int s, const unsigned* table, std::uint32_t (&to)[4]) const {
        const uint2 upper = own_[2 * m].four(s, own_[2 * m].look(s, table));
        const uint2 lower = own_[2 * m + 1].four(s, own_[2 * m + 1].look(s, table));
        to[0] = upper.x, to[1] = lower.x, to[2] = upper.y, to[3] = lower.y;
    }

  private:
    __device__ static int unit_of(int step) {
        return step * (kSpan / kUnit) + static_cast<int>(threadIdx.x) % 4;
    }

    const std::byte* row_[kRows];  // null: zeros
    int blocks_;
    int units_;
    int align_;
    typename Own::Raw raw_[kRows];
    Pairs own_[kRows];
};

// The rows of x, step by step in shared memory. Piece p of a unit, eight columns, lies beside
// piece p of the other units, and neighbouring rows in different banks.
class Rows {
  public:
    __device__ Rows(const UnpackedProduct& work, const Job& job, std::byte* stages, int* first)
        : x_(work.x), stages_(stages), first_(first), count_((job.members + 15) / 16 * 16) {
        const auto thread = static_cast<int>(threadIdx.x);
        if (thread < kExpertTileRows) {
            const int member = job.member + min(thread, job.members - 1);
            const std::int64_t row = work.index == nullptr ? member : work.index[member];
            first[thread] = static_cast<int>(row * (x_.stride / 8));
        }
        __syncthreads();
    }
    __device__ void bring(int step) const {
        const auto thread = static_cast<int>(threadIdx.x);
        const int piece = thread % kPieces;
        const int slot = piece % 4 * 4 + piece / 4;
        const int from = step * kPieces + piece;
        const bool take = from < static_cast<int>(x_.stride / 8);
        std::byte* stage = stages_ + step % kDepth * kStageBytes;
        for (int r = thread / kPieces; r < count_; r += kThreads / kPieces) {
            const std::int64_t at = first_[r] + (take ? from : 0);
            copy_async(stage + r * kSpanBytes + (slot ^ r % 2 * 4) * 16, x_.data + at * 8, take);
        }
    }
    // Of row 8 j + lane / 4 piece p of unit lane % 4.
    __device__ uint4 eight(int step, int j, int p) const {
        const int lane = static_cast<int>(threadIdx.x) % kWarp;
        const int row = lane / 4;
        const std::byte* stage = stages_ + step % kDepth * kStageBytes;
        const int at = row * kSpanBytes + ((p ^ row % 2) * 4 + lane % 4) * 16;
        return *reinterpret_cast<const uint4*>(stage + at + j * 8 * kSpanBytes);
    }

  private:
    RoundedRows x_;
    std::byte* stages_;
    const int* first_;
    int count_;
};

using Sums = float[2][2 * kSixteens][4];

// The first `sixteens` tiles of sixteen members.
template <quant::Type kType>
__device__ inline void add_step(Sums& sums, const Units<kType>& units, const unsigned* table,
                                const Rows& rows, int step, int sixteens) {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
        std::uint32_t left[2][2][4];
#pragma unroll
        for (int s = 0; s < 2; ++s) {
            units.tile(0, 2 * p + s, table, left[s][0]);
            units.tile(1, 2 * p + s, table, left[s][1]);
        }
#pragma unroll
        for (int i = 0; i < kSixteens; ++i) {
            if (i >= sixteens) break;
            const uint4 right[2] = {rows.eight(step, 2 * i, p), rows.eight(step, 2 * i + 1, p)};
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                add_tile_bf16(sums[0][2 * i + j], left[0][0], right[j].x, right[j].y);
                add_tile_bf16(sums[1][2 * i + j], left[0][1], right[j].x, right[j].y);
            }
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                add_tile_bf16(sums[0][2 * i + j], left[1][0], right[j].z, right[j].w);
                add_tile_bf16(sums[1][2 * i + j], left[1][1], right[j].z, right[j].w);
            }
        }
    }
}

// A lane has of the rows g of a tile, g = lane / 4, members 2q and 2q + 1: it gets of rows g and
// its neighbour, the even one first, member 2q, or 2q + 1 where g is odd.
__device__ inline float2 pair_of(float first, float second) {
    const bool odd = static_cast<int>(threadIdx.x) / 4 % 2 != 0;
    const float other = __shfl_xor_sync(kAllLanes, odd ? first : second, 4);
    return odd ? make_float2(other, second) : make_float2(first, other);
}

__device__ inline float factor_of(const float* factors, int expert) {
    return factors == nullptr ? 1.0f : factors[expert];
}

// Row `row`, which is even, and the next of a member's products.
__device__ inline void store_pair(const MatrixView<float>& out, std::int64_t member, int row,
                                  float2 v) {
    float* to = out.row(member) + row;
    if (out.cols % 2 == 0 && row < out.cols) {
        *reinterpret_cast<float2*>(to) = v;
    } else {
        if (row < out.cols) to[0] = v.x;
        if (row + 1 < out.cols) to[1] = v.y;
    }
}

__device__ inline void store(const UnpackedProduct& work, const Job& job, const Sums& sums,
                             int sixteens) {
    const auto thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kWarp;
    const int even = lane / 8 * 2;
    const int first = job.row + thread / kWarp * kWarpRows;
    const float factor = factor_of(work.matrices.factors, job.expert);
    const float other_factor = factor_of(work.turning_factors, job.expert);
#pragma unroll
    for (int j = 0; j < 2 * kSixteens; ++j) {
        if (j >= 2 * sixteens) break;
        const int own = 8 * j + lane % 4 * 2 + lane / 4 % 2;
        const std::int64_t member = job.member + own;
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            const float(&v)[4] = sums[m][j];
            if (work.turning == nullptr) {
                const float2 upper = pair_of(v[0] * factor, v[1] * factor);
                const float2 lower = pair_of(v[2] * factor, v[3] * factor);
                if (own >= job.members) continue;
                store_pair(work.out, member, first + 16 * m + even, upper);
                store_pair(work.out, member, first + 16 * m + 8 + even, lower);
                continue;
            }
            const float2 hidden = pair_of(silu(v[0] * factor) * (v[2] * other_factor),
                                          silu(v[1] * factor) * (v[3] * other_factor));
            const int at = first / 2 + 8 * m + even;
            // Zeros fill a row to whole steps.
            if (own >= job.members || at >= work.hidden.stride) continue;
            *reinterpret_cast<std::uint32_t*>(work.hidden.row(member) + at) =
                bf16_pair(at < work.matrices.rows ? hidden.x : 0.0f,
                          at + 1 < work.matrices.rows ? hidden.y : 0.0f);
        }
    }
}

template <quant::Type kType>
constexpr std::size_t shared_size() {
    return std::size_t{kDepth} * kStageBytes + UnitPairs<kType>::kTableBytes +
           kExpertTileRows * sizeof(int);
}

template <quant::Type kType>
__global__ void __launch_bounds__(kThreads, 2) multiply_unpacked(UnpackedProduct work) {
    static_assert(shared_size<kType>() <= kSharedBytesEverywhere);
    if (!kPromptsRun || kWarpgroupsAlone) return;
    Job job;
    if (!find(work, job)) return;
    std::byte* shared = shared_bytes();
    auto* table = reinterpret_cast<unsigned*>(shared + kDepth * kStageBytes);
    auto* first =
        reinterpret_cast<int*>(shared + kDepth * kStageBytes + UnitPairs<kType>::kTableBytes);
    Units<kType> units(work, job);
    units.load(0);
    UnitPairs<kType>::template fill<kThreads>(table);
    const Rows rows(work, job, shared, first);
    const int steps = static_cast<int>((work.x.stride + kSpan - 1) / kSpan);
    const int sixteens = (job.members + 15) / 16;
    for (int step = 0; step < kDepth - 1; ++step) {
        if (step < steps) rows.bring(step);
        commit_copies();
    }
    Sums sums = {};
    for (int step = 0; step < steps; ++step) {
        units.decode(step, table);
        units.load(step + 1);
        wait_copies<kDepth - 2>();
        __syncthreads();
        // Into the stage that all left before the barrier.
        if (step + kDepth - 1 < steps) rows.bring(step + kDepth - 1);
        commit_copies();
        add_step(sums, units, table, rows, step, sixteens);
    }
    store(work, job, sums, sixteens);
}

}  // namespace unpacked
}  // namespace strata::cuda::prompt
