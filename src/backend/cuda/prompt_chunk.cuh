// What the two kernels of the chunked delta net share: matrices of a chunk in BF16 pairs, value =
// high + low, and products of them on tensor cores. Of a product three parts are taken; the fourth,
// low times low, is under 2^-17 of it.
#pragma once

#include "backend/cuda/prompt_delta.h"
#include "backend/cuda/warpgroup.cuh"

namespace strata::cuda::prompt {

inline constexpr int kChunk = op::kDeltaChunk;
inline constexpr int kPanelBytes = kChunk * kPanelRowBytes;
static_assert(kPanelColumns == kChunk);

// A matrix of kChunk rows: panels of 64 columns (warpgroup.cuh), the high parts of all, then the
// low parts.
template <int kColumns>
struct Paired {
    static constexpr int kPanels = (kColumns + kPanelColumns - 1) / kPanelColumns;
    static constexpr int kPartBytes = kPanels * kPanelBytes;
    static constexpr int kPieces = kColumns / 8;  // of 16 bytes, in a row
    std::byte bytes[2 * kPartBytes];

    // Columns 8 piece .. of a row; the low part where `low` is 1.
    __device__ static int at(int row, int piece, int low) {
        return low * kPartBytes + piece / 8 * kPanelBytes + panel_at(row, piece % 8);
    }
    __device__ std::byte* piece(int row, int piece, int low) { return bytes + at(row, piece, low); }
    __device__ const std::byte* piece(int row, int piece, int low) const {
        return bytes + at(row, piece, low);
    }
};

// What the memory of a head meets in a chunk. With G_i the sum of the log decays up to row i and A
// as docs/model/model.md has it; rows that are not there have no key, no beta and no decay.
template <int kKeyDim>
struct KeyChunk {  // of a key head
    Paired<kKeyDim> q;
    Paired<kKeyDim> k;
};
struct Gains {
    float before[kChunk];  // exp(G_i)
    float after[kChunk];   // exp(G_last - G_i)
};
struct HeadChunk {          // of a value head
    Paired<kChunk> solved;  // (I + A)^-1 diag(beta)
    Paired<kChunk> share;   // (q_i . k_j) exp(G_i - G_j), j <= i
    Gains gains;
};

__host__ __device__ inline std::int64_t chunks_of(std::int64_t rows) {
    return (rows + kChunk - 1) / kChunk;
}

// At [chunk * heads + head].
template <int kKeyDim>
struct Chunks {
    KeyChunk<kKeyDim>* keys;
    HeadChunk* heads;
};

// Makes what the chunks of all heads need of no memory.
void solve_delta(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows,
                 const Chunks<128>& chunks);
void solve_delta(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows,
                 const Chunks<64>& chunks);
void solve_delta(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows,
                 const Chunks<32>& chunks);

// Two values as pairs of their parts.
__device__ inline void split_pair(float x, float y, std::uint32_t& high, std::uint32_t& low) {
    high = bf16_pair(x, y);
    low = bf16_pair(x - __uint_as_float(high << 16), y - __uint_as_float(high & 0xffff0000u));
}

// A tile of 16 x 16 as the left side of products.
struct SplitTile {
    std::uint32_t high[4];
    std::uint32_t low[4];
};
// Of sums of two tiles of 16 x 8 side by side: the layouts of sums and of left sides agree.
__device__ inline SplitTile split_tile(const float (&left)[4], const float (&right)[4]) {
    SplitTile tile;
    split_pair(left[0], left[1], tile.high[0], tile.low[0]);
    split_pair(left[2], left[3], tile.high[1], tile.low[1]);
    split_pair(right[0], right[1], tile.high[2], tile.low[2]);
    split_pair(right[2], right[3], tile.high[3], tile.low[3]);
    return tile;
}

// Four tiles of 16 x 8, side by side, as the right side of products: of each the high part in two
// registers, then the low one.
inline constexpr int kTogether = 4;
using RightTiles = std::uint32_t[kTogether][4];

// Rows 8 (first + i) .. of a matrix, columns 16 step ..: the product is with its transpose.
template <int kColumns>
__device__ inline void load_rows(RightTiles& to, const Paired<kColumns>& from, int first, int step,
                                 int lane) {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
        const int row = 8 * (first + i) + lane % 8;
        load_tiles(to[i], from.piece(row, 2 * step + lane / 8 % 2, lane / 16));
    }
}
// Rows 16 step .. of a matrix, columns 8 (first + i) ..
template <int kColumns>
__device__ inline void load_columns(RightTiles& to, const Paired<kColumns>& from, int first,
                                    int step, int lane) {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
        load_tiles_turned(to[i], from.piece(16 * step + lane % 16, first + i, lane / 16));
    }
}
// Rows 16 m .. as a left side.
template <int kColumns>
__device__ inline SplitTile load_left(const Paired<kColumns>& from, int m, int step, int lane) {
    SplitTile tile;
    load_tiles(tile.high, from.piece(16 * m + lane % 16, 2 * step + lane / 16, 0));
    load_tiles(tile.low, from.piece(16 * m + lane % 16, 2 * step + lane / 16, 1));
    return tile;
}

// sums[first ..] += a b. Products onto one sum wait for each other, so the four take turns.
template <int kTiles>
__device__ inline void add_split(float (&sums)[kTiles][4], int first, const SplitTile& a,
                                 const RightTiles& b) {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) add_tile_bf16(sums[first + i], a.low, b[i][0], b[i][1]);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) add_tile_bf16(sums[first + i], a.high, b[i][2], b[i][3]);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) add_tile_bf16(sums[first + i], a.high, b[i][0], b[i][1]);
}

}  // namespace strata::cuda::prompt
