// Rows of the caches of attention (op/cache_row.h), in any type.
#pragma once

#include "backend/cuda/intrinsics.cuh"
#include "op/cache_row.h"

namespace strata::cuda {

// Types whose values lie alone, one after another. One head of a row is found by its first value.
template <op::CacheType kType, typename Value>
struct PlainCache {
    using Stored = Value;
    static constexpr op::CacheType type = kType;

    struct Head {
        const Stored* values;
    };
    // Head g of row `row`.
    __device__ static Head head(const void* cache, int heads, int dim, std::int64_t row, int g) {
        return {static_cast<const Stored*>(cache) + (row * heads + g) * dim};
    }
};

struct CacheF16 : PlainCache<op::CacheType::f16, std::uint16_t> {
    __device__ static float value(const Head& head, int i) { return half_to_float(head.values[i]); }

    // Eight neighbours from a multiple of eight on, two and one, as they are loaded and as floats.
    struct Eight {
        uint4 bits;
        __device__ void load(const Head& head, int i) {
            bits = *reinterpret_cast<const uint4*>(head.values + i);
        }
        __device__ void unpack(float* values) const {
            const unsigned words[] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                values[2 * i] = half_to_float(static_cast<Stored>(words[i] & 0xffffu));
                values[2 * i + 1] = half_to_float(static_cast<Stored>(words[i] >> 16));
            }
        }
    };
    struct Two {
        unsigned bits;
        __device__ void load(const Head& head, int i) {
            bits = *reinterpret_cast<const unsigned*>(head.values + i);
        }
        __device__ void unpack(float* values) const {
            values[0] = half_to_float(static_cast<Stored>(bits & 0xffffu));
            values[1] = half_to_float(static_cast<Stored>(bits >> 16));
        }
    };
    struct One {
        Stored bits;
        __device__ void load(const Head& head, int i) { bits = head.values[i]; }
        __device__ void unpack(float* values) const { values[0] = half_to_float(bits); }
    };
};

struct CacheF32 : PlainCache<op::CacheType::f32, float> {
    __device__ static float value(const Head& head, int i) { return head.values[i]; }

    struct Eight {
        float4 low;
        float4 high;
        __device__ void load(const Head& head, int i) {
            low = reinterpret_cast<const float4*>(head.values + i)[0];
            high = reinterpret_cast<const float4*>(head.values + i)[1];
        }
        __device__ void unpack(float* values) const {
            values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
            values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
        }
    };
    struct Two {
        float2 both;
        __device__ void load(const Head& head, int i) {
            both = *reinterpret_cast<const float2*>(head.values + i);
        }
        __device__ void unpack(float* values) const { values[0] = both.x, values[1] = both.y; }
    };
    struct One {
        float one;
        __device__ void load(const Head& head, int i) { one = head.values[i]; }
        __device__ void unpack(float* values) const { values[0] = one; }
    };
};

struct CacheQ8 {
    static constexpr op::CacheType type = op::CacheType::q8_0;
    static constexpr int kGroup = static_cast<int>(op::kCacheGroup);

    struct Head {
        const std::int8_t* values;
        const std::uint16_t* scales;
    };
    __device__ static Head head(const void* cache, int heads, int dim, std::int64_t row, int g) {
        const op::CacheRow shape{type, heads, dim};
        const auto* at = static_cast<const std::int8_t*>(cache) + row * shape.bytes();
        return {at + g * dim, reinterpret_cast<const std::uint16_t*>(at + shape.scales_at()) +
                                  g * shape.groups()};
    }
    __device__ static float value(const Head& head, int i) {
        return half_to_float(head.scales[i / kGroup]) * static_cast<float>(head.values[i]);
    }

    // Value i of a word of four.
    __device__ static float signed_byte(unsigned word, int i) {
        return static_cast<float>(static_cast<std::int8_t>(word >> 8 * i & 0xffu));
    }

    struct Eight {
        uint2 bits;
        std::uint16_t scale;
        __device__ void load(const Head& head, int i) {
            bits = *reinterpret_cast<const uint2*>(head.values + i);
            scale = head.scales[i / kGroup];
        }
        __device__ void unpack(float* values) const {
            const float factor = half_to_float(scale);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                values[i] = factor * signed_byte(i < 4 ? bits.x : bits.y, i % 4);
            }
        }
    };
};

// use(Cache()) for the type of a cache.
template <typename Use>
void with_cache(op::CacheType type, Use use) {
    if (type == op::CacheType::f16) return use(CacheF16());
    if (type == op::CacheType::q8_0) return use(CacheQ8());
    use(CacheF32());
}

namespace detail {

// A group of up to 32 values, one a lane, from lanes below `count`.
__device__ inline void store_group(float value, int count, std::int8_t* to, std::uint16_t* scale) {
    constexpr unsigned kInfinity = 0x7f800000u;
    constexpr std::uint16_t kNan = 0x7e00u;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    unsigned bits = lane < count ? __float_as_uint(value) & 0x7fffffffu : 0u;  // of magnitudes
    for (int by = kWarp / 2; by > 0; by /= 2) {
        const unsigned other = __shfl_xor_sync(kAllLanes, bits, by);
        bits = other > bits ? other : bits;
    }
    const float most = __uint_as_float(bits);
    const float factor = 127.0f / most;
    const bool rounds = bits < kInfinity && __float_as_uint(factor) < kInfinity;
    if (lane < count) {
        to[lane] =
            rounds ? static_cast<std::int8_t>(__float2int_rn(value * factor)) : std::int8_t{0};
    }
    if (lane == 0) {
        const std::uint16_t none = bits >= kInfinity ? kNan : std::uint16_t{0};
        *scale = rounds ? float_to_half(most / 127.0f) : none;
    }
}

}  // namespace detail

// Puts the values of head g of row `row` into a cache, by a warp, whose lanes all call it. What
// another lane wrote to `from` is there.
__device__ inline void store_head(const op::CacheRow& shape, const float* from, void* cache,
                                  std::int64_t row, int g) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const auto dim = static_cast<int>(shape.dim);
    std::byte* to = static_cast<std::byte*>(cache) + row * shape.bytes();
    if (shape.type != op::CacheType::q8_0) {
        for (int i = lane; i < dim; i += kWarp) {
            const std::int64_t at = g * shape.dim + i;
            if (shape.type == op::CacheType::f16) {
                reinterpret_cast<std::uint16_t*>(to)[at] = float_to_half(from[i]);
            } else {
                reinterpret_cast<float*>(to)[at] = from[i];
            }
        }
        return;
    }
    auto* values = reinterpret_cast<std::int8_t*>(to) + g * shape.dim;
    auto* scales = reinterpret_cast<std::uint16_t*>(to + shape.scales_at()) + g * shape.groups();
    for (int i = 0; i < dim; i += kWarp) {
        const int count = min(kWarp, dim - i);
        detail::store_group(lane < count ? from[i + lane] : 0.0f, count, values + i,
                            scales + i / kWarp);
    }
    if (g + 1 < shape.heads || lane != 0) return;
    // What belongs to no head.
    for (std::int64_t i = shape.heads * shape.dim; i < shape.scales_at(); ++i) to[i] = std::byte{0};
    for (std::int64_t i = shape.scales_end(); i < shape.bytes(); ++i) to[i] = std::byte{0};
}
static_assert(op::kCacheGroup == kWarp);

}  // namespace strata::cuda
