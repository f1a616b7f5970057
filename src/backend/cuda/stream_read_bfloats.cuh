// Weights in BF16 of stream_read_tiles.cuh, which lanes ask for into registers. A value of F32 is
// the sum of three in BF16, to the last bit: products are exact and sums are in F32.
#pragma once

#include "backend/cuda/stream_read_tiles.cuh"

namespace strata::cuda::tiles {

inline constexpr int kParts = 3;  // values in BF16 that one of F32 is the sum of

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
    __device__ void store(float* to) const {
        store_tile(to, make_float2(sum(0), sum(1)), make_float2(sum(2), sum(3)));
    }
};

// The lane's eights of weight rows g and g + 8 of a tile. Where there are none, of rows that are
// not asked for or of columns that R * norm has zeros for, they are others. R * norm of a warp's
// columns of kRows rows, [kParts, kRows, kWarpColumns], is in shared memory.
template <int kRows>
struct BfloatSlice {
    static constexpr int kBytes = kParts * kRows * kWarpColumns * 2;
    static constexpr bool kRoundsTogether = false;
    uint4 upper[kSliceSpans];
    uint4 lower[kSliceSpans];

    __device__ void ask(const Tiled& read, int first_row, int s, int column, std::byte*) {
        const int own = column + eight_of_lane() * kEight;
        ask_row(read, first_row + row_of_lane(), s, own, upper);
        ask_row(read, first_row + 8 + row_of_lane(), s, own, lower);
    }
    __device__ __forceinline__ static void put(std::byte* shared, int row, int four, bool,
                                               float (&values)[4]) {
        auto* to = reinterpret_cast<std::uint16_t*>(shared);
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
            const std::uint32_t low = bf16_pair(values[0], values[1]);
            const std::uint32_t high = bf16_pair(values[2], values[3]);
            *reinterpret_cast<uint2*>(to + (p * kRows + row) * kWarpColumns + 4 * four) =
                make_uint2(low, high);
            values[0] -= bfloat_to_float(static_cast<std::uint16_t>(low));
            values[1] -= bfloat_to_float(static_cast<std::uint16_t>(low >> 16));
            values[2] -= bfloat_to_float(static_cast<std::uint16_t>(high));
            values[3] -= bfloat_to_float(static_cast<std::uint16_t>(high >> 16));
        }
    }
    __device__ static void arrive(std::byte*) { __syncwarp(); }
    __device__ __forceinline__ void multiply(const std::byte* shared, float* sums) const {
        const auto* from = reinterpret_cast<const std::uint16_t*>(shared);
        TileSums tile;
#pragma unroll
        for (int j = 0; j < kSliceSpans; ++j) {
#pragma unroll
            for (int p = 0; p < kParts; ++p) {
                uint4 x{0, 0, 0, 0};
                if (row_of_lane() < kRows) {
                    x = *reinterpret_cast<const uint4*>(from +
                                                        (p * kRows + row_of_lane()) * kWarpColumns +
                                                        j * kSpan + eight_of_lane() * kEight);
                }
                tile.add(upper[j], lower[j], p, x.x, x.y, x.z, x.w);
            }
        }
        tile.store(sums);
    }

  private:
    __device__ static void ask_row(const Tiled& read, int row, int s, int column,
                                   uint4 (&to)[kSliceSpans]) {
        const std::byte* from =
            read.product_row(row, std::int64_t{read.all_columns()} * 2) + s * read.width * 2;
#pragma unroll
        for (int j = 0; j < kSliceSpans; ++j) {
            to[j] = load_early<uint4>(from + min(column + j * kSpan, read.width - kEight) * 2);
        }
    }
};

// The lane's eights of up: of column g of a set of eight, of all streams. Where there are none, of
// columns that are not asked for or that l has zeros for, they are others. l is in shared memory,
// [kParts, kRows, kStride].
template <int kRows>
struct BfloatLow {
    static constexpr int kStride = kLowMax + kSpan;  // neighbouring rows lie in different banks
    static constexpr int kBytes = kParts * kRows * kStride * 2;
    uint4 eight[kLowSpans][kStreamsMax];

    static std::size_t shared_bytes(const Tiled&) { return 0; }

    __device__ void ask(const Tiled& read) {
        const int warp = static_cast<int>(threadIdx.x) / kWarp;
        const int column =
            static_cast<int>(blockIdx.x) * kColumns + warp / kLowWarps * kEight + row_of_lane();
#pragma unroll
        for (int s = 0; s < kStreamsMax; ++s) {
            const std::int64_t row =
                min(s, read.streams - 1) * read.width + min(column, read.width - 1);
#pragma unroll
            for (int j = 0; j < kLowSpans; ++j) {
                const int c = min(first_column() + j * kSpan, read.low - kEight);
                eight[j][s] = load_early<uint4>(read.up + (row * read.low + c) * 2);
            }
        }
    }
    template <int kTogether>
    __device__ static void put(std::byte* shared, int row, int product,
                               float (&values)[kTogether]) {
        auto* low = reinterpret_cast<std::uint16_t*>(shared);
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
            std::uint16_t* to = low + (p * kRows + row) * kStride + product;
#pragma unroll
            for (int i = 0; i < kTogether; ++i) {
                const std::uint16_t bits = bf16_of(values[i]);
                to[i] = bits;
                values[i] -= bfloat_to_float(bits);
            }
        }
    }
    __device__ static void arrive() {}
    // gates[stream, column of the set, row] = up . l over the warp's columns of up.
    __device__ void multiply(const Tiled&, const std::byte* shared, float* gates) const {
        const auto* low = reinterpret_cast<const std::uint16_t*>(shared);
        TileSums tiles[kStreamsMax / 2];
#pragma unroll
        for (int j = 0; j < kLowSpans; ++j) {
#pragma unroll
            for (int p = 0; p < kParts; ++p) {
                uint4 l{0, 0, 0, 0};
                if (row_of_lane() < kRows) {
                    l = *reinterpret_cast<const uint4*>(
                        low + (p * kRows + row_of_lane()) * kStride + first_column() + j * kSpan);
                }
#pragma unroll
                for (int m = 0; m < kStreamsMax / 2; ++m) {
                    tiles[m].add(eight[j][2 * m], eight[j][2 * m + 1], p, l.x, l.y, l.z, l.w);
                }
            }
        }
#pragma unroll
        for (int m = 0; m < kStreamsMax / 2; ++m) tiles[m].store(gates + m * kTileRows * kWindow);
    }

  private:
    __device__ static int first_column() {
        const int warp = static_cast<int>(threadIdx.x) / kWarp;
        return warp % kLowWarps * (kLowSpans * kSpan) + eight_of_lane() * kEight;
    }
};

struct Bfloats {
    template <int kRows>
    using Slice = BfloatSlice<kRows>;
    template <int kRows>
    using Low = BfloatLow<kRows>;
};

}  // namespace strata::cuda::tiles
