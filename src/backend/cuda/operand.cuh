// Input rows as products read them, a row after the other:
//
//   rounded   as op/weight.h says, for units of 32 columns: all units' first 16 codes, all their
//             last 16, their scales a, and the sums of both halves' codes (16 bits each)
//   plain     F32 in pieces of eight columns: the first four of all pieces, then the last four
//
// so that lanes with neighbouring units read neighbouring memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/intrinsics.cuh"
#include "backend/cuda/unpack.cuh"

namespace strata::cuda {

inline constexpr int kPiece = 8;  // columns of plain rows that lie together
inline constexpr int kPlain = 0;  // in place of the columns of a group that is rounded together

// Bytes of a row of `cols` values, a multiple of 16.
constexpr std::int64_t operand_bytes(int group, std::int64_t cols) {
    if (group == kPlain) return (cols + kPiece - 1) / kPiece * kPiece * 4;
    return (cols / kUnit * 40 + 15) / 16 * 16;
}

__device__ inline void spread_fours(float4 low, float4 high, float* to) {
    to[0] = low.x;
    to[1] = low.y;
    to[2] = low.z;
    to[3] = low.w;
    to[4] = high.x;
    to[5] = high.y;
    to[6] = high.z;
    to[7] = high.w;
}

__device__ inline void load_eight(const float* from, float* to) {
    const auto* four = reinterpret_cast<const float4*>(from);
    spread_fours(four[0], four[1], to);
}

// Rows of F32, or of silu(data) * up where there is `up`; zeros follow their end.
struct InputRows {
    const float* data = nullptr;
    const float* up = nullptr;
    std::int64_t stride = 0;
    int cols = 0;

    __device__ float at(std::int64_t row, int column) const {
        if (column >= cols) return 0.0f;
        const float value = data[row * stride + column];
        return up == nullptr ? value : silu(value) * up[row * stride + column];
    }
    // Four columns from a multiple of four on.
    __device__ float4 four(std::int64_t row, int column) const {
        const float* from = data + row * stride + column;
        if (column + 4 <= cols && up == nullptr &&
            reinterpret_cast<std::uintptr_t>(from) % sizeof(float4) == 0) {
            return *reinterpret_cast<const float4*>(from);
        }
        return make_float4(at(row, column), at(row, column + 1), at(row, column + 2),
                           at(row, column + 3));
    }
    // Eight columns from a multiple of eight on.
    __device__ void eight(std::int64_t row, int column, float* to) const {
        const std::int64_t from = row * stride + column;
        const auto bits = reinterpret_cast<std::uintptr_t>(data + from) |
                          reinterpret_cast<std::uintptr_t>(up == nullptr ? nullptr : up + from);
        if (column + kPiece > cols || bits % 16 != 0) {
#pragma unroll
            for (int i = 0; i < kPiece; ++i) to[i] = at(row, column + i);
            return;
        }
        load_eight(data + from, to);
        if (up == nullptr) return;
        float other[kPiece];
        load_eight(up + from, other);
#pragma unroll
        for (int i = 0; i < kPiece; ++i) to[i] = silu(to[i]) * other[i];
    }
};

// What a rounded row's parts are.
struct RoundedRow {
    const std::byte* data;
    int units;

    // Four columns each, the first lowest.
    __device__ void codes(int unit, int (&to)[8]) const {
        const uint4 low = reinterpret_cast<const uint4*>(data)[unit];
        const uint4 high = reinterpret_cast<const uint4*>(data)[units + unit];
        to[0] = static_cast<int>(low.x);
        to[1] = static_cast<int>(low.y);
        to[2] = static_cast<int>(low.z);
        to[3] = static_cast<int>(low.w);
        to[4] = static_cast<int>(high.x);
        to[5] = static_cast<int>(high.y);
        to[6] = static_cast<int>(high.z);
        to[7] = static_cast<int>(high.w);
    }
    __device__ float scale(int unit) const {
        return reinterpret_cast<const float*>(data)[8 * units + unit];
    }
    __device__ int sums(int unit) const {
        return reinterpret_cast<const int*>(data)[9 * units + unit];
    }
};
__device__ inline int low_sum(int sums) { return static_cast<std::int16_t>(sums & 0xffff); }
__device__ inline int high_sum(int sums) { return sums >> 16; }

// A sum of products of codes that begins with these bits has the bits of a float, which costs less
// than its conversion.
inline constexpr int kSumBits = 0x4b400000;
__device__ inline float float_of_sum(int bits) { return __int_as_float(bits) - 12582912.0f; }

// A turned row differs in two things, for weights of two bits that are codes - 1. The 16 codes of
// half a unit are a square of four that is turned over, as the fields of a word of two bits lie.
// And in place of the sums is kSumBits less both of them: where a product of codes begins.

// The largest of the values that the same `lanes` neighbouring lanes hold.
__device__ inline unsigned max_of_lanes(unsigned value, int lanes) {
    for (int by = lanes / 2; by > 0; by /= 2) {
        const unsigned other = __shfl_xor_sync(kAllLanes, value, by);
        value = other > value ? other : value;
    }
    return value;
}

// The bits of a magnitude, which are in the order of magnitudes, NaN last.
__device__ inline unsigned magnitude_bits(float value) {
    return __float_as_uint(value) & 0x7fffffffu;
}

// How values of a group become eight bits, by its largest magnitude_bits(): those too small for an
// inverse become 0, those with a NaN or an infinity NaN.
struct RoundedGroup {
    static constexpr unsigned kInfinity = 0x7f800000u;
    unsigned largest;
    float inverse;
    bool none;  // all codes are 0

    __device__ static RoundedGroup of(unsigned largest) {
        const float inverse = __fdiv_rn(127.0f, __uint_as_float(largest));
        return {largest, inverse, largest >= kInfinity || __float_as_uint(inverse) >= kInfinity};
    }
    // In -127 .. 127. Not where `none`: a product with the inverse may be no number there, which no
    // integer is.
    __device__ int code(float value) const { return __float2int_rn(value * inverse); }
    __device__ float scale() const {
        const float nan = __uint_as_float(0x7fc00000u);
        const float own = largest >= kInfinity ? nan : __fdiv_rn(__uint_as_float(largest), 127.0f);
        return none && largest < kInfinity ? 0.0f : own;
    }
};

// Eight columns a lane of a warp, from `column` on, of a row with `units` units, turned or not:
// those of a group lie in neighbouring lanes, and nothing from `end` on is stored.
template <bool kTurned = false>
__device__ inline void round_eight(const float (&values)[kPiece], int column, int end, int units,
                                   int group, std::byte* to) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    unsigned largest = 0;
    for (const float value : values) {
        const unsigned bits = magnitude_bits(value);
        largest = bits > largest ? bits : largest;
    }
    const auto rounded = RoundedGroup::of(max_of_lanes(largest, group / kPiece));
    int codes[2] = {};
    int sum = 0;
    for (int i = 0; i < kPiece && !rounded.none; ++i) {
        const int code = rounded.code(values[i]);
        codes[i / 4] |= (code & 255) << i % 4 * 8;
        sum += code;
    }
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    const int other = __shfl_xor_sync(kAllLanes, sum, 2);
    if (column >= end) return;
    const int unit = column / kUnit;
    const int place = (lane / 2 % 2 * units + unit) * 16;
    if constexpr (kTurned) {
        for (int i = 0; i < 4; ++i) {
            const int two = (codes[0] >> 8 * i & 255) | (codes[1] >> 8 * i & 255) << 8;
            *reinterpret_cast<std::uint16_t*>(to + place + i * 4 + lane % 2 * 2) =
                static_cast<std::uint16_t>(two);
        }
    } else {
        *reinterpret_cast<int2*>(to + place + lane % 2 * 8) = make_int2(codes[0], codes[1]);
    }
    if (lane % 4 != 0) return;
    reinterpret_cast<float*>(to)[8 * units + unit] = rounded.scale();
    reinterpret_cast<int*>(to)[9 * units + unit] =
        kTurned ? kSumBits - (sum + other) : (sum & 0xffff) | other << 16;
}

// 256 columns from `column` on by one warp.
template <typename Rows>
__device__ inline void round_columns(const Rows& x, std::int64_t row, int column, int group,
                                     std::byte* to) {
    const int own = column + static_cast<int>(threadIdx.x) % kWarp * kPiece;
    float values[kPiece] = {};
    if (own < x.cols) x.eight(row, own, values);
    round_eight(values, own, x.cols, x.cols / kUnit, group, to);
}

// The same columns of a plain row, by one warp.
__device__ inline void place_columns(const InputRows& x, std::int64_t row, int column,
                                     std::byte* to) {
    const int own = column + static_cast<int>(threadIdx.x) % kWarp * kPiece;
    if (own >= x.cols) return;
    float values[kPiece];
    x.eight(row, own, values);
    const int pieces = (x.cols + kPiece - 1) / kPiece;
    auto* places = reinterpret_cast<float4*>(to) + own / kPiece;
    places[0] = make_float4(values[0], values[1], values[2], values[3]);
    places[pieces] = make_float4(values[4], values[5], values[6], values[7]);
}

inline constexpr int kTogether = 256;  // columns that a warp rounds at once

// The first `rows` rows by the warps `warp`, `warp` + `warps`, ... of all.
__device__ inline void make_operand(const InputRows& x, int rows, int group, int warp, int warps,
                                    std::byte* to) {
    const std::int64_t bytes = operand_bytes(group, x.cols);
    const int across = (x.cols + kTogether - 1) / kTogether;
    for (int i = warp; i < rows * across; i += warps) {
        const int row = i / across;
        const int column = i % across * kTogether;
        if (group == kPlain) {
            place_columns(x, row, column, to + row * bytes);
        } else {
            round_columns(x, row, column, group, to + row * bytes);
        }
    }
}

}  // namespace strata::cuda
