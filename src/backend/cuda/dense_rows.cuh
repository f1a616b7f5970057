// What kernels of dense_rows.h share: shapes, arguments, rows without blocks.
#pragma once

#include "backend/cuda/few_rows.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/products.h"

namespace strata::cuda {

namespace dense {

inline constexpr int kWarps = kValueWarps;
inline constexpr int kThreads = kWarps * kWarp;

}  // namespace dense

// Rows that `lanes` lanes hold in up to `held` units each: known sizes make the code short.
template <int kLanes, int kUnits>
struct RowShape {
    static constexpr int lanes = kLanes;
    static constexpr int units = kUnits;
    static constexpr int held = (kUnits + kLanes - 1) / kLanes;
    static constexpr int cols = units * kUnit;
    static constexpr int x_bytes = static_cast<int>(operand_bytes(kUnit, cols));
    // Rows without blocks: fours of columns of a thread.
    static constexpr int fours = cols / kValueFour / dense::kThreads;
    static constexpr bool has_values = fours * dense::kThreads * kValueFour == cols && fours <= 5;
    static_assert(lanes == lanes_of_row(cols));
};
using Cols2560 = RowShape<16, 80>;
using Cols4096 = RowShape<32, 128>;
using Cols5120 = RowShape<32, 160>;
using Cols6144 = RowShape<32, 192>;
using Cols7680 = RowShape<32, 240>;

struct DensePart {
    const std::byte* weight;
    float* out;
    int rows;
    int out_stride;
    float factor;
    quant::Type type;
};

struct DenseArgs {
    int first_block[kPartsMax];
    int parts;
    int x_rows;
    int x_held;  // rounded input rows that shared memory has at once
    int group;
    const std::byte* made;  // null where blocks round x themselves
    const float* x;
    std::int64_t x_stride;
    DensePart part[kPartsMax];

    __device__ void store(const DensePart& own, int t, int row, float sum) const {
        own.out[std::int64_t{t} * own.out_stride + row] =
            own.factor == 1.0f ? sum : sum * own.factor;
    }
};

// Four values of F32, or of BF16 in half the bits.
__device__ __forceinline__ uint4 load_values(const DensePart& part, int row, int cols, int four) {
    const std::int64_t at = std::int64_t{row} * cols + four * kValueFour;
    if (part.type == quant::Type::f32) return load_early<uint4>(part.weight + at * 4);
    const uint2 pairs = load_early<uint2>(part.weight + at * 2);
    return make_uint4(pairs.x, pairs.y, 0, 0);
}
__device__ __forceinline__ float4 values_of(const DensePart& part, uint4 bits) {
    if (part.type != quant::Type::f32) {
        bits = make_uint4(bits.x << 16, bits.x & 0xffff0000u, bits.y << 16, bits.y & 0xffff0000u);
    }
    return make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
                       __uint_as_float(bits.w));
}

// A row without blocks: a thread takes fours of columns dense::kThreads apart.
template <typename Shape, int kTile>
__device__ __forceinline__ void multiply_values(const DenseArgs& args, const DensePart& part,
                                                int row) {
    __shared__ float parts[dense::kWarps][kTile];
    const auto thread = static_cast<int>(threadIdx.x);
    uint4 bits[Shape::fours];
#pragma unroll
    for (int j = 0; j < Shape::fours; ++j) {
        bits[j] = load_values(part, row, Shape::cols, j * dense::kThreads + thread);
    }
    follow_earlier_kernels();
#pragma unroll 1
    for (int first = 0; first < args.x_rows; first += kTile) {
        float4 x[kTile][Shape::fours];
#pragma unroll
        for (int t = 0; t < kTile; ++t) {
            const auto* own = reinterpret_cast<const float4*>(
                args.x + min(first + t, args.x_rows - 1) * args.x_stride);
#pragma unroll
            for (int j = 0; j < Shape::fours; ++j) x[t][j] = own[j * dense::kThreads + thread];
        }
        float sums[kTile] = {};
#pragma unroll
        for (int j = 0; j < Shape::fours; ++j) {
            const float4 weight = values_of(part, bits[j]);
#pragma unroll
            for (int t = 0; t < kTile; ++t) sums[t] = add_value_four(weight, x[t][j], sums[t]);
        }
        if (first != 0) __syncthreads();
#pragma unroll
        for (int t = 0; t < kTile; ++t) {
            const float sum = warp_sum(sums[t]);
            if (thread % kWarp == 0) parts[thread / kWarp][t] = sum;
        }
        __syncthreads();
        if (thread < kTile && first + thread < args.x_rows) {
            float sum = parts[0][thread];
#pragma unroll
            for (int w = 1; w < dense::kWarps; ++w) sum += parts[w][thread];
            args.store(part, first + thread, row, sum);
        }
    }
}

__device__ __forceinline__ int part_of(const DenseArgs& args, int block) {
    int own = 0;
    while (own + 1 < args.parts && block >= args.first_block[own + 1]) ++own;
    return own;
}

}  // namespace strata::cuda
