// Op StreamRead with weights in BF16 on tensor cores, in two launches, each bounded by reading its
// weight once for up to eight rows.
//
// As in stream_read_fused.cu the norm of a stream is a factor of its part of down . X, so the first
// launch multiplies down with R * norm in slices that lie within one stream, and sums the squares
// of a slice. A warp has 16 rows of a weight and some columns, all of them asked for before the
// wait; the warps of a block have different columns and add up their sums. A tile of eight
// columns is the window, so that a window costs what a row does. A value of F32 is the sum of three
// in BF16, to the last bit: products are exact and sums are in F32.
#pragma once

#include "backend/cuda/launch.cuh"
#include "backend/cuda/tensor_core.cuh"

namespace strata::cuda::tiles {

inline constexpr int kTileRows = 16;  // of a weight
inline constexpr int kWindow = 8;     // rows of x that go through a weight together
inline constexpr int kEight = 8;      // columns of a weight row in a load
inline constexpr int kSpan = 32;      // columns of a weight row that four lanes have
inline constexpr int kParts = 3;      // values in BF16 that one of F32 is the sum of
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
};

__device__ inline int row_of_lane() { return static_cast<int>(threadIdx.x) % kWarp / 4; }
__device__ inline int eight_of_lane() { return static_cast<int>(threadIdx.x) % 4; }

// Sums of 16 weight rows with the window, by part of x.
struct TileSums {
    float part[kParts][4] = {};

    // The lane's eights of rows g and g + 8 of the tile, of 32 columns.
    __device__ void add(uint4 upper, uint4 lower, int p, std::uint32_t x0, std::uint32_t x1,
                        std::uint32_t x2, std::uint32_t x3) {
        const std::uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y};
        const std::uint32_t second[4] = {upper.z, lower.z, upper.w, lower.w};
        add_tile_bf16(part[p], first, x0, x1);
        add_tile_bf16(part[p], second, x2, x3);
    }
    __device__ float sum(int i) const { return part[0][i] + (part[1][i] + part[2][i]); }
    // Rows of kWindow sums: the lane's are in rows g and g + 8.
    __device__ void store(float* to) const {
        float* at = to + row_of_lane() * kWindow + eight_of_lane() * 2;
        *reinterpret_cast<float2*>(at) = make_float2(sum(0), sum(1));
        *reinterpret_cast<float2*>(at + 8 * kWindow) = make_float2(sum(2), sum(3));
    }
};

// The columns of a slice, which fix how long the sums of a product are.
inline constexpr int kSliceWarps = 8;
inline constexpr int kSliceSpans = 5;  // of a warp
inline constexpr int kSliceColumns = kSliceWarps * kSliceSpans * kSpan;
// The columns of up, which the warps of a block share.
inline constexpr int kLowWarps = 5;
inline constexpr int kLowSpans = 2;  // of a warp
inline constexpr int kLowMax = kLowWarps * kLowSpans * kSpan;

// Submits the first launch.
void multiply_slices(const Tiled& read, Queue& queue);
// Submits the second one.
void collapse(const Tiled& read, Queue& queue);

inline unsigned windows_of(const Tiled& read) {
    return static_cast<unsigned>((read.rows + kWindow - 1) / kWindow);
}

}  // namespace strata::cuda::tiles
