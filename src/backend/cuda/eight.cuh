// Eight neighbouring weights of a type without blocks, as one or two loads of 16 bytes.
#pragma once

#include <cstddef>

#include "backend/cuda/intrinsics.cuh"
#include "base/check.h"
#include "op/weight.h"
#include "quant/type.h"

namespace strata::cuda {

inline constexpr int kEight = 8;

struct EightF32 {
    float4 low;
    float4 high;

    __device__ static EightF32 load(const std::byte* row, int eight) {
        const auto* from = reinterpret_cast<const float4*>(row) + 2 * eight;
        return {__ldg(from), __ldg(from + 1)};
    }
    __device__ void unpack(float* values) const {
        values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
        values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
    }
};

template <bool kBrain>
struct EightHalves {
    uint4 bits;

    __device__ static EightHalves load(const std::byte* row, int eight) {
        return {__ldg(reinterpret_cast<const uint4*>(row) + eight)};
    }
    __device__ static float decode(unsigned half) {
        if constexpr (kBrain) return bfloat_to_float(static_cast<std::uint16_t>(half));
        return half_to_float(static_cast<std::uint16_t>(half));
    }
    __device__ void unpack(float* values) const {
        const unsigned words[] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            values[2 * i] = decode(words[i] & 0xffffu);
            values[2 * i + 1] = decode(words[i] >> 16);
        }
    }
};

// Whether the rows of a weight can be read as eights.
inline bool reads_as_eights(const op::Weight& weight) {
    const bool plain = weight.type == quant::Type::f32 || weight.type == quant::Type::f16 ||
                       weight.type == quant::Type::bf16;
    return plain && weight.cols % kEight == 0 && weight.factor == 1.0f &&
           reinterpret_cast<std::uintptr_t>(weight.data) % 16 == 0;
}

// use(Eight()) for the type of such a weight.
template <typename Use>
void with_eight(quant::Type type, Use use) {
    switch (type) {
        case quant::Type::f32:
            return use(EightF32());
        case quant::Type::f16:
            return use(EightHalves<false>());
        case quant::Type::bf16:
            return use(EightHalves<true>());
        default:
            STRATA_CHECK(!"a matrix of a format with blocks");
    }
}

// Where value c of a row lies in shared memory whose eights are read by a float4 a lane: the first
// four of every eight, then the last four, so that neighbouring lanes read neighbouring banks.
__device__ inline int eight_at(int c, int eights) {
    return ((c % kEight / 4) * eights + c / kEight) * 4 + c % 4;
}

// sum += values . the eight `at` of a row that lies so.
__device__ inline float add_eight(const float* values, const float* row, int at, int eights,
                                  float sum) {
    const auto* four = reinterpret_cast<const float4*>(row);
    const float4 low = four[at];
    const float4 high = four[eights + at];
    sum = __fmaf_rn(values[0], low.x, sum);
    sum = __fmaf_rn(values[1], low.y, sum);
    sum = __fmaf_rn(values[2], low.z, sum);
    sum = __fmaf_rn(values[3], low.w, sum);
    sum = __fmaf_rn(values[4], high.x, sum);
    sum = __fmaf_rn(values[5], high.y, sum);
    sum = __fmaf_rn(values[6], high.z, sum);
    return __fmaf_rn(values[7], high.w, sum);
}

}  // namespace strata::cuda
