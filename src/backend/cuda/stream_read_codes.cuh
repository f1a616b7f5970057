// Weights in Q8_0 of stream_read_tiles.cuh. 32 columns are a block, and rows of x are rounded in
// groups of 32 as well (op/weight.h): so one product of tensor cores, which is exact, is that of a
// block of 16 weight rows with a group of eight rows of x. Sums go block after block, each a fused
// multiply-add; those of a warp, then those of warps.
//
// The norm of a stream is left out of x here too, for which op/stream_read.h leaves room: codes are
// those of R * norm. They are those of X but where that lies within a few roundings of a tie, and
// but for sizes that X need not have: a group whose largest is below 127 / FLT_MAX, about 3.7e-37,
// has the codes 0, and one with a product above FLT_MAX makes its row NaN.
//
// Weights are copied to shared memory: a lane would load the few bytes that it needs of a block
// in more pieces than there are lines.
#pragma once

#include "backend/cuda/blocks.h"
#include "backend/cuda/operand.cuh"
#include "backend/cuda/stream_read_tiles.cuh"

namespace strata::cuda::tiles {

inline constexpr int kHalfBytes = 16;  // of a block: what a copy brings
inline constexpr int kScaleBytes = 2;
inline constexpr int kBlockBytes = block_fields(quant::Type::q8_0).bytes;
static_assert(kBlockBytes == 2 * kHalfBytes + kScaleBytes);
static_assert(block_fields(quant::Type::q8_0).values == kSpan);

__device__ inline unsigned word_at(const std::byte* from) {
    return *reinterpret_cast<const unsigned*>(from);
}

// The codes of a lane's columns of a group, which neighbouring lanes have; the first lowest.
template <int kCount>
__device__ inline unsigned round_together(const float (&values)[kCount], float& scale) {
    unsigned largest = 0;
#pragma unroll
    for (const float value : values) {
        const unsigned bits = magnitude_bits(value);
        largest = bits > largest ? bits : largest;
    }
    const auto rounded = RoundedGroup::of(max_of_lanes(largest, kSpan / kCount));
    unsigned codes = 0;
#pragma unroll
    for (int i = 0; i < kCount && !rounded.none; ++i) {
        codes |= (static_cast<unsigned>(rounded.code(values[i])) & 255u) << 8 * i;
    }
    scale = rounded.scale();
    return codes;
}

// Rows of x as codes, kRows of kStride bytes, and behind them their scales, [blocks, kWindow].
template <int kRows, int kBlocks>
struct CodedRows {
    // Neighbouring rows lie in different banks.
    static constexpr int kStride = kBlocks * kSpan + kHalfBytes;
    static_assert(kStride % 32 == kHalfBytes);
    static constexpr int kScalesAt = kRows * kStride;
    static constexpr int kBytes = kScalesAt + kBlocks * kWindow * 4;

    // Columns `column`, ... of a row; all lanes call it, and those that take it store it.
    template <int kCount>
    __device__ __forceinline__ static void put(std::byte* to, int row, int column, bool takes,
                                               const float (&values)[kCount]) {
        float scale;
        const unsigned codes = round_together(values, scale);
        if (!takes) return;
        std::byte* at = to + row * kStride + column;
        if constexpr (kCount == 4) {
            *reinterpret_cast<unsigned*>(at) = codes;
        } else if constexpr (kCount == 2) {
            *reinterpret_cast<std::uint16_t*>(at) = static_cast<std::uint16_t>(codes);
        } else {
            static_assert(kCount == 1);
            *at = static_cast<std::byte>(codes);
        }
        if (column % kSpan == 0) {
            reinterpret_cast<float*>(to + kScalesAt)[column / kSpan * kWindow + row] = scale;
        }
    }
    // Of row g, the lane's columns of a block's first half and of its last.
    __device__ static uint2 codes(const std::byte* from, int block) {
        if (row_of_lane() >= kRows) return {0, 0};
        const std::byte* at = from + row_of_lane() * kStride + block * kSpan + eight_of_lane() * 4;
        return {word_at(at), word_at(at + kHalfBytes)};
    }
    // Of the rows that the lane gets sums of; of those that are none it may be anything.
    __device__ static float2 scales(const std::byte* from, int block) {
        return reinterpret_cast<const float2*>(from +
                                               kScalesAt)[block * kWindow / 2 + eight_of_lane()];
    }
};

// sums += block `block` of weight rows g and g + 8 times that of the window. Rows have the first
// halves of `blocks` blocks, their last halves, then their scales.
__device__ __forceinline__ void add_block(const std::byte* upper, const std::byte* lower,
                                          int blocks, int block, uint2 x, float2 x_scale,
                                          float (&sums)[4]) {
    const int first = block * kHalfBytes + eight_of_lane() * 4;
    const int last = first + blocks * kHalfBytes;
    const unsigned a[4] = {word_at(upper + first), word_at(lower + first), word_at(upper + last),
                           word_at(lower + last)};
    int bits[4] = {kSumBits, kSumBits, kSumBits, kSumBits};
    add_tile_s8(bits, a, x.x, x.y);
    const int scale_at = 2 * blocks * kHalfBytes + block * kScaleBytes;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const std::byte* row = i < 2 ? upper : lower;
        const float scale = half_to_float(*reinterpret_cast<const std::uint16_t*>(row + scale_at));
        sums[i] =
            __fmaf_rn(float_of_sum(bits[i]), scale * (i % 2 == 0 ? x_scale.x : x_scale.y), sums[i]);
    }
}

// A warp's columns of a tile of weight rows, then those of rows of x. Scales come through
// registers: they may begin anywhere.
template <int kRows>
struct CodeSlice {
    using Inputs = CodedRows<kRows, kSliceSpans>;
    static constexpr bool kRoundsTogether = true;
    // Neighbouring rows lie in different banks.
    static constexpr int kStride = kSliceSpans * 2 * kHalfBytes + kHalfBytes;
    static_assert(kSliceSpans * kScaleBytes <= kHalfBytes);
    static constexpr int kInputsAt = kTileRows * kStride;
    static constexpr int kBytes = kInputsAt + Inputs::kBytes;
    static_assert(kBytes % kHalfBytes == 0);
    static constexpr int kHalves = kTileRows * 2 * kSliceSpans;
    static_assert(kHalves % kWarp == 0);
    static constexpr int kScales = kTileRows * kSliceSpans;
    static constexpr int kScalesEach = (kScales + kWarp - 1) / kWarp;
    std::uint16_t scale[kScalesEach];

    __device__ void ask(const Tiled& read, int first_row, int s, int column, std::byte* shared) {
        const int lane = static_cast<int>(threadIdx.x) % kWarp;
        const int blocks = read.all_columns() / kSpan;
        const int first = (s * read.width + column) / kSpan;
        const int there = (read.width - column) / kSpan;  // others would be of the next stream
        const auto row_at = [&](int row) {
            return read.product_row(first_row + row, std::int64_t{blocks} * kBlockBytes);
        };
#pragma unroll
        for (int n = 0; n < kHalves / kWarp; ++n) {
            const int i = lane + n * kWarp;
            const int row = i / (2 * kSliceSpans);
            const int half = i / kSliceSpans % 2;
            const int block = i % kSliceSpans;
            copy_async(shared + row * kStride + i % (2 * kSliceSpans) * kHalfBytes,
                       row_at(row) + (half * blocks + first + block) * kHalfBytes, block < there);
        }
        commit_copies();
#pragma unroll
        for (int n = 0; n < kScalesEach; ++n) {
            const int i = lane + n * kWarp;
            const int block = i % kSliceSpans;
            scale[n] = 0;
            if (i >= kScales || block >= there) continue;
            scale[n] = load_early<std::uint16_t>(row_at(i / kSliceSpans) + 2 * blocks * kHalfBytes +
                                                 (first + block) * kScaleBytes);
        }
    }
    __device__ __forceinline__ static void put(std::byte* shared, int row, int four, bool takes,
                                               const float (&values)[4]) {
        Inputs::put(shared + kInputsAt, row, 4 * four, takes, values);
    }
    __device__ void arrive(std::byte* shared) const {
#pragma unroll
        for (int n = 0; n < kScalesEach; ++n) {
            const int i = static_cast<int>(threadIdx.x) % kWarp + n * kWarp;
            if (i >= kScales) break;
            std::byte* row = shared + i / kSliceSpans * kStride + kSliceSpans * 2 * kHalfBytes;
            reinterpret_cast<std::uint16_t*>(row)[i % kSliceSpans] = scale[n];
        }
        wait_copies<0>();
        __syncwarp();
    }
    __device__ __forceinline__ static void multiply(const std::byte* shared, float* to) {
        const std::byte* upper = shared + row_of_lane() * kStride;
        const std::byte* x = shared + kInputsAt;
        float sums[4] = {};
#pragma unroll
        for (int j = 0; j < kSliceSpans; ++j) {
            add_block(upper, upper + 8 * kStride, kSliceSpans, j, Inputs::codes(x, j),
                      Inputs::scales(x, j), sums);
        }
        store_tile(to, make_float2(sums[0], sums[1]), make_float2(sums[2], sums[3]));
    }
};

// The block's rows of up, of kColumns columns of x of each stream, as they lie in memory.
template <int kRows>
struct CodeLow {
    using Inputs = CodedRows<kRows, kLowMax / kSpan>;
    static constexpr int kBytes = Inputs::kBytes;

    __host__ __device__ static int row_bytes(const Tiled& read) {
        return read.low / kSpan * kBlockBytes;
    }
    static std::size_t shared_bytes(const Tiled& read) {
        return static_cast<std::size_t>(read.streams * kColumns * row_bytes(read));
    }
    __device__ static void ask(const Tiled& read) {
        const int column = static_cast<int>(blockIdx.x) * kColumns;
        if (column >= read.width) return;
        // As many rows as a copy has bytes are whole copies, whatever the bytes of a row.
        static_assert(kColumns % kHalfBytes == 0);
        const int each = kColumns / kHalfBytes * row_bytes(read);  // copies of a stream
        for (int i = static_cast<int>(threadIdx.x); i < read.streams * each; i += kReadThreads) {
            const std::int64_t row = i / each * read.width + column;
            copy_async(cuda::shared_bytes() + i * kHalfBytes,
                       read.up + row * row_bytes(read) + i % each * kHalfBytes, true);
        }
        commit_copies();
    }
    template <int kTogether>
    __device__ static void put(std::byte* shared, int row, int product,
                               const float (&values)[kTogether]) {
        Inputs::put(shared, row, product, true, values);
    }
    __device__ static void arrive() { wait_copies<0>(); }
    // gates[stream, column of the set, row] = up . l over the warp's columns of up.
    __device__ static void multiply(const Tiled& read, const std::byte* shared, float* gates) {
        const int warp = static_cast<int>(threadIdx.x) / kWarp;
        const int blocks = read.low / kSpan;
        const auto row_at = [&](int s) {
            const int column = warp / kLowWarps * kEight + row_of_lane();
            const int row = min(s, read.streams - 1) * kColumns + column;
            return cuda::shared_bytes() + row * row_bytes(read);
        };
        float sums[kStreamsMax / 2][4] = {};
#pragma unroll
        for (int j = 0; j < kLowSpans; ++j) {
            const int block = warp % kLowWarps * kLowSpans + j;
            if (block >= blocks) break;
            const uint2 l = Inputs::codes(shared, block);
            const float2 scales = Inputs::scales(shared, block);
#pragma unroll
            for (int m = 0; m < kStreamsMax / 2; ++m) {
                add_block(row_at(2 * m), row_at(2 * m + 1), blocks, block, l, scales, sums[m]);
            }
        }
#pragma unroll
        for (int m = 0; m < kStreamsMax / 2; ++m) {
            store_tile(gates + m * kTileRows * kWindow, make_float2(sums[m][0], sums[m][1]),
                       make_float2(sums[m][2], sums[m][3]));
        }
    }
};

struct Codes {
    template <int kRows>
    using Slice = CodeSlice<kRows>;
    template <int kRows>
    using Low = CodeLow<kRows>;
};

}  // namespace strata::cuda::tiles
