// Op StreamRead with weights in BF16 or in Q8_0 on tensor cores, in two launches, each bounded by
// reading its weight once for up to eight rows.
//
// As in stream_read_fused.cu the norm of a stream is a factor of its part of down . X, so the first
// launch multiplies down with R * norm in slices that lie within one stream, and sums the squares
// of a slice. A warp has 16 rows of a weight and some columns, all of them asked for before the
// wait; the warps of a block have different columns and add up their sums. A tile of eight
// columns is the window, so that a window costs what a row does. How weights and rows of x meet is
// the form's: stream_read_bfloats.cuh, stream_read_codes.cuh. A form has
//
//   Slice<kRows>   what a warp of the first launch has, in kBytes of shared memory and registers
//     ask          for the weights, before the wait
//     put          four columns of a row of R * norm, by all lanes where kRoundsTogether
//     arrive       the weights are there, to all lanes, and so is what lanes have put
//     multiply     both
//   Low<kRows>     the same of a block of the second launch, with l in kBytes: weights may take
//                  shared_bytes() besides; all of the block meet between arrive and multiply
#pragma once

#include "backend/cuda/launch.cuh"
#include "backend/cuda/tensor_core.cuh"
#include "quant/type.h"

namespace strata::cuda::tiles {

inline constexpr int kTileRows = 16;  // of a weight
inline constexpr int kWindow = 8;     // rows of x that go through a weight together
inline constexpr int kEight = 8;      // columns of a weight row in a load
inline constexpr int kSpan = 32;      // columns of a weight row that four lanes have
inline constexpr int kStreamsMax = 4;
inline constexpr int kSlicesMax = 8;  // of all streams

// What both launches need, in few bytes: a kernel waits for its parameters.
struct Tiled {
    float* residual;
    const float* block_out;     // null: none
    const float* block_inject;  // [T, S]
    const float* norm;
    const std::byte* down;
    const std::byte* up;
    const std::byte* inject_weight;
    float* x;
    float* inject;
    float* partial;      // [T, slices of all streams, stride]
    float* squares;      // [T, slices of all streams]
    float* inject_from;  // [T, S]: block_inject, which inject may overwrite
    int rows;
    int width;  // of a stream
    int low;    // rows of down
    int streams;
    int slices;    // of a stream
    int products;  // rows of down, then of inject_weight
    float epsilon;
    float share;  // 1 / S

    __device__ int all_slices() const { return streams * slices; }
    __device__ int all_columns() const { return streams * width; }
    __device__ int stride() const { return (products + kTileRows - 1) / kTileRows * kTileRows; }
    // Row `row` of the products, the last one where there is none.
    __device__ const std::byte* product_row(int row, std::int64_t row_bytes) const {
        const int there = min(row, products - 1);
        return there < low ? down + there * row_bytes : inject_weight + (there - low) * row_bytes;
    }
};

__device__ inline int row_of_lane() { return static_cast<int>(threadIdx.x) % kWarp / 4; }
__device__ inline int eight_of_lane() { return static_cast<int>(threadIdx.x) % 4; }

// The sums of 16 weight rows with the window, of which a lane has those of rows g and g + 8.
__device__ inline void store_tile(float* to, float2 upper, float2 lower) {
    float* at = to + row_of_lane() * kWindow + eight_of_lane() * 2;
    *reinterpret_cast<float2*>(at) = upper;
    *reinterpret_cast<float2*>(at + 8 * kWindow) = lower;
}

// The columns of a slice, which fix how long the sums of a product are.
inline constexpr int kSliceWarps = 8;
inline constexpr int kSliceSpans = 5;  // of a warp
inline constexpr int kWarpColumns = kSliceSpans * kSpan;
inline constexpr int kSliceColumns = kSliceWarps * kWarpColumns;
// The columns of up, which the warps of a block share.
inline constexpr int kLowWarps = 5;
inline constexpr int kLowSpans = 2;  // of a warp
inline constexpr int kLowMax = kLowWarps * kLowSpans * kSpan;
// The columns of x, of a block of the second launch.
inline constexpr int kSets = 2;  // of eight
inline constexpr int kColumns = kSets * kEight;
inline constexpr int kReadThreads = kSets * kLowWarps * kWarp;

// Submits the first launch. `type`: of the weights.
void multiply_slices(const Tiled& read, quant::Type type, Queue& queue);
// Submits the second one.
void collapse(const Tiled& read, quant::Type type, Queue& queue);

inline unsigned windows_of(const Tiled& read) {
    return static_cast<unsigned>((read.rows + kWindow - 1) / kWindow);
}

}  // namespace strata::cuda::tiles
