// Keys and values of prompts on their way to shared memory, where they lie as F16 in rows of kDim.
#pragma once

#include "backend/cuda/cache.cuh"
#include "backend/cuda/tensor_core.cuh"
#include "op/sparse_attention.h"

namespace strata::cuda::prompt {

// Where 16 bytes of a row lie; those of eight neighbouring rows in different banks.
template <int kDim>
__device__ inline std::byte* row_piece(std::byte* rows, int row, int piece) {
    return rows + row * 2 * kDim + (piece ^ (row & 7)) * 16;
}

// Four signed bytes, each times a scale, as F16: what the product in F32 would be rounded to.
__device__ inline uint2 scaled_halves(unsigned bytes, std::uint16_t scale) {
#ifdef __CUDACC__
    // 1024 + (byte + 128) as the bits of a half, whose last bit is worth 1.
    const unsigned moved = bytes ^ 0x80808080u;
    const unsigned pairs[] = {__byte_perm(moved, 0x64646464u, 0x4140u),
                              __byte_perm(moved, 0x64646464u, 0x4342u)};
    const __half2 zero = __float2half2_rn(1152.0f);
    const __half2 factor = __half2half2(__ushort_as_half(scale));
    unsigned halves[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const __half2 codes = __hsub2(*reinterpret_cast<const __half2*>(&pairs[i]), zero);
        const __half2 values = __hmul2(codes, factor);
        halves[i] = *reinterpret_cast<const unsigned*>(&values);
    }
    return make_uint2(halves[0], halves[1]);
#else
    const float factor = half_to_float(scale);
    const auto value = [&](int i) { return factor * CacheQ8::signed_byte(bytes, i); };
    return make_uint2(f16_pair(value(0), value(1)), f16_pair(value(2), value(3)));
#endif
}

// Eight values of a head from a multiple of eight on, as F16; zeros where `take` is false.
__device__ inline void bring_piece(std::byte* to, CacheF16, const CacheF16::Head& head, int i,
                                   bool take) {
    copy_async(to, head.values + i, take);
}
__device__ inline void bring_piece(std::byte* to, CacheF32, const CacheF32::Head& head, int i,
                                   bool take) {
    float v[8] = {};
    if (take) {
        CacheF32::Eight eight;
        eight.load(head, i);
        eight.unpack(v);
    }
    *reinterpret_cast<uint4*>(to) = make_uint4(f16_pair(v[0], v[1]), f16_pair(v[2], v[3]),
                                               f16_pair(v[4], v[5]), f16_pair(v[6], v[7]));
}
__device__ inline void bring_piece(std::byte* to, CacheQ8, const CacheQ8::Head& head, int i,
                                   bool take) {
    CacheQ8::Eight eight{};
    if (take) eight.load(head, i);
    const uint2 low = scaled_halves(eight.bits.x, eight.scale);
    const uint2 high = scaled_halves(eight.bits.y, eight.scale);
    *reinterpret_cast<uint4*>(to) = make_uint4(low.x, low.y, high.x, high.y);
}

// The piece of a key and of the value beside it, of row `row` of the caches.
template <int kDim, typename Cache>
__device__ inline void bring_pieces(std::byte* key_to, std::byte* value_to,
                                    const op::SparseAttention& args, std::int64_t row, int g,
                                    int piece, bool take) {
    const int heads = args.shape.kv_heads;
    bring_piece(key_to, Cache(), Cache::head(args.cache.keys, heads, kDim, take ? row : 0, g),
                piece * 8, take);
    bring_piece(value_to, Cache(), Cache::head(args.cache.values, heads, kDim, take ? row : 0, g),
                piece * 8, take);
}

}  // namespace strata::cuda::prompt
