// Products of weight rows with some input rows by a warp, which has the rows brought to shared
// memory, or to registers where blocks are wide. Code is short, as a kernel this brief runs most of
// it for the first time. The order of a sum follows from format and columns alone: neither the
// input rows that are taken together nor the launch changes a bit.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/block_units.cuh"
#include "backend/cuda/codebooks.cuh"
#include "backend/cuda/queue.h"
#include "backend/cuda/row_products.cuh"
#include "backend/cuda/staging.cuh"

namespace strata::cuda {

// use(name) for the formats of blocks that have code here.
#define STRATA_FEW_ROW_BLOCKS(use) use(q8_0) use(q4_0) use(q2_0) use(iq3_xxs)

// Shared memory that a block of the kernels with these products takes at most: what every device
// has.
inline constexpr int kFewRowsBytesMost = 65536 - static_cast<int>(kReadTogether);

// Copies `bytes` of the codebook to the block's shared memory: that of iq3_xxs, the only one of
// these formats. All threads call it, and a barrier comes before they read.
__device__ inline void copy_few_rows_book(int bytes, unsigned* to) {
    const auto* from = reinterpret_cast<const unsigned*>(&kIq3XxsTable);
    const auto threads = static_cast<int>(blockDim.x);
    for (int i = static_cast<int>(threadIdx.x); i < bytes / 4; i += threads) to[i] = from[i];
}

// Lanes that share a weight row of blocks: about five units for each.
__host__ __device__ constexpr int lanes_of_row(int cols) {
    const int wanted = (cols / kUnit + 4) / 5;
    int lanes = 4;
    while (lanes < wanted && lanes < kWarp) lanes *= 2;
    return lanes;
}

// Rows that a lane takes together: what is read of x serves them all.
constexpr int rows_of_lane(int window) { return window == 1 ? 1 : 2; }

// Rows that a warp has brought at once: some kilobytes, of a size that the copy engine takes.
inline constexpr int kStageBytesLeast = 2048;
inline constexpr int kStageBytesMost = 12288;
constexpr int rows_of_warp(int cols, int row_bytes, int window) {
    int rows = kWarp / lanes_of_row(cols) * rows_of_lane(window);
    while (rows * row_bytes < kStageBytesLeast) rows *= 2;
    for (int more = rows; more * row_bytes <= kStageBytesMost; more *= 2) {
        if (more * row_bytes % kStageAlign == 0) return more;
    }
    return rows;
}
constexpr int staged_bytes(int bytes) {
    return (bytes + kStageAlign - 1) / kStageAlign * kStageAlign;
}

// Weight rows of a warp with input rows.
struct RowJob {
    const std::byte* rows_at;  // in shared memory; for multiply_wide_rows() in device memory
    int rows;                  // that are there, at least 1
    int row_bytes;
    int align;  // of the rows
    int lanes;  // of lanes_of_row()
    int cols;
    const unsigned* book;   // in shared memory, of formats that have one
    const std::byte* made;  // rounded input rows
    std::int64_t made_bytes;
    const int* x_rows;  // null: first_x, first_x + 1, ...
    int first_x;
    int count;
    float factor;
    float* out;  // of input row t and weight row r: out[t * out_stride + r]
    std::int64_t out_stride;

    __device__ int x_row(int t) const {
        const int own = t < count ? t : count - 1;
        return x_rows == nullptr ? first_x + own : x_rows[own];
    }
    __device__ void store(int t, int r, float sum) const {
        if (t < count && r < rows) {
            out[t * out_stride + r] = factor == 1.0f ? sum : sum * factor;
        }
    }
};

// sums += the parts of a unit of rows.
template <typename Own, int kTile, int kRows>
__device__ __forceinline__ void add_rows(const Unit (&weight)[kRows],
                                         const std::byte* const (&x)[kTile], int units, int unit,
                                         float (&sums)[kRows][kTile]) {
#pragma unroll
    for (int t = 0; t < kTile; ++t) {
        const RoundedRow own{x[t], units};
        int codes[8];
        own.codes(unit, codes);
        const int have = Own::kOffset != 0 || Own::kMinima ? own.sums(unit) : 0;
        const float scale = own.scale(unit);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            sums[r][t] = add_unit<Own>(weight[r], codes, have, scale, sums[r][t]);
        }
    }
}

// The same, of rows in shared memory from `row` on.
template <quant::Type kType, int kTile, int kLaneRows>
__device__ __forceinline__ void add_row_units(const RowJob& job, int row, int unit,
                                              const std::byte* const (&x)[kTile],
                                              float (&sums)[kLaneRows][kTile]) {
    using Own = BlockUnits<kType>;
    constexpr int kBlock = block_fields(kType).values;
    Unit weight[kLaneRows];
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
        const std::byte* from = job.rows_at + min(row + r, job.rows - 1) * job.row_bytes;
        typename Own::Raw raw;
        Own::load(StagedPlanes<kType>{from, job.cols / kBlock, {job.align}}, unit, raw);
        Own::decode(raw, unit, job.book, weight[r]);
    }
    add_rows<Own, kTile, kLaneRows>(weight, x, job.cols / kUnit, unit, sums);
}

// Rows of blocks.
template <quant::Type kType, int kTile>
__device__ __forceinline__ void multiply_block_rows(const RowJob& job) {
    constexpr int kLaneRows = rows_of_lane(kTile);
    const int units = job.cols / kUnit;
    const int lanes = job.lanes;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int step = kWarp / lanes * kLaneRows;
#pragma unroll 1
    for (int first = 0; first < job.count; first += kTile) {
        const std::byte* x[kTile];
#pragma unroll
        for (int t = 0; t < kTile; ++t) x[t] = job.made + job.x_row(first + t) * job.made_bytes;
#pragma unroll 1
        for (int from = 0; from < job.rows; from += step) {
            const int row = from + lane / lanes * kLaneRows;
            float sums[kLaneRows][kTile] = {};
#pragma unroll 1
            for (int unit = lane % lanes; unit < units; unit += lanes) {
                add_row_units<kType, kTile, kLaneRows>(job, row, unit, x, sums);
            }
#pragma unroll
            for (int t = 0; t < kTile; ++t) {
#pragma unroll
                for (int r = 0; r < kLaneRows; ++r) {
                    float sum = sums[r][t];
                    for (int by = lanes / 2; by > 0; by /= 2) {
                        sum += __shfl_xor_sync(kAllLanes, sum, by);
                    }
                    if (lane % lanes == 0) job.store(first + t, row + r, sum);
                }
            }
        }
    }
}

// Where blocks are wide, eight bits or so a weight cost no more to unpack than to move, so they go
// to registers at once: these units of a lane, kWarp / lanes_of_row() rows of a warp.
inline constexpr int kWideUnits = 3;
__host__ __device__ constexpr bool is_wide(quant::Type type) {
    return type == quant::Type::q8_0 || type == quant::Type::q4_0;
}

// As multiply_block_rows(), of rows in device memory at multiples of 16. ready() is called when the
// first weights are on their way.
template <quant::Type kType, int kTile, typename Ready>
__device__ __forceinline__ void multiply_wide_rows(const RowJob& job, const Ready& ready) {
    using Own = BlockUnits<kType>;
    const int units = job.cols / kUnit;
    const int lane = static_cast<int>(threadIdx.x) % job.lanes;
    const int row = static_cast<int>(threadIdx.x) % kWarp / job.lanes;
    const std::byte* from = job.rows_at + min(row, job.rows - 1) * job.row_bytes;
    typename Own::Raw raw[kWideUnits];
    const auto load = [&](int begin) {
#pragma unroll
        for (int u = 0; u < kWideUnits; ++u) {
            const int unit = begin + u * job.lanes;
            if (unit < units) Own::load(EarlyPlanes<kType>{from, units}, unit, raw[u]);
        }
    };
    load(lane);
    ready();
    const int sweep = kWideUnits * job.lanes;
#pragma unroll 1
    for (int first = 0; first < job.count; first += kTile) {
        const std::byte* x[kTile];
#pragma unroll
        for (int t = 0; t < kTile; ++t) x[t] = job.made + job.x_row(first + t) * job.made_bytes;
        float sums[1][kTile] = {};
#pragma unroll 1
        for (int begin = lane; begin < units; begin += sweep) {
            if (begin >= sweep || (first != 0 && units > sweep)) load(begin);
#pragma unroll
            for (int u = 0; u < kWideUnits; ++u) {
                const int unit = begin + u * job.lanes;
                if (unit >= units) break;
                Unit weight[1];
                Own::decode(raw[u], unit, nullptr, weight[0]);
                add_rows<Own, kTile, 1>(weight, x, units, unit, sums);
            }
        }
#pragma unroll
        for (int t = 0; t < kTile; ++t) {
            float sum = sums[0][t];
            for (int by = job.lanes / 2; by > 0; by /= 2) {
                sum += __shfl_xor_sync(kAllLanes, sum, by);
            }
            if (lane == 0) job.store(first + t, row, sum);
        }
    }
}

// The sum of a row without blocks: kValueWarps * kWarp chains take the row's fours of columns in
// turns, one after the other; those of a warp are added in halves, then those of the warps in
// order.
inline constexpr int kValueWarps = 4;
inline constexpr int kValueFour = 4;
__device__ __forceinline__ float add_value_four(float4 weight, float4 x, float sum) {
    sum = __fmaf_rn(weight.x, x.x, sum);
    sum = __fmaf_rn(weight.y, x.y, sum);
    sum = __fmaf_rn(weight.z, x.z, sum);
    return __fmaf_rn(weight.w, x.w, sum);
}

template <int kTile>
__device__ __forceinline__ void multiply_blocks(quant::Type type, const RowJob& job) {
    switch (type) {
#define STRATA_CASE(name)   \
    case quant::Type::name: \
        return multiply_block_rows<quant::Type::name, kTile>(job);
        STRATA_FEW_ROW_BLOCKS(STRATA_CASE)
#undef STRATA_CASE
        default:
            return;
    }
}

}  // namespace strata::cuda
