// Entries of the caches of attention, in either type.
#pragma once

#include "backend/cuda/intrinsics.cuh"
#include "op/sparse_attention.h"

namespace strata::cuda {

struct CacheF16 {
    using Stored = std::uint16_t;

    __device__ static float decode(Stored stored) { return half_to_float(stored); }
    __device__ static Stored encode(float value) { return float_to_half(value); }

    // Eight neighbours, two and one, as they are loaded and as floats.
    struct Eight {
        uint4 bits;
        __device__ void load(const Stored* from) { bits = *reinterpret_cast<const uint4*>(from); }
        __device__ void unpack(float* values) const {
            const unsigned words[] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                values[2 * i] = decode(static_cast<Stored>(words[i] & 0xffffu));
                values[2 * i + 1] = decode(static_cast<Stored>(words[i] >> 16));
            }
        }
    };
    struct Two {
        unsigned bits;
        __device__ void load(const Stored* from) {
            bits = *reinterpret_cast<const unsigned*>(from);
        }
        __device__ void unpack(float* values) const {
            values[0] = decode(static_cast<Stored>(bits & 0xffffu));
            values[1] = decode(static_cast<Stored>(bits >> 16));
        }
    };
    struct One {
        Stored bits;
        __device__ void load(const Stored* from) { bits = *from; }
        __device__ void unpack(float* values) const { values[0] = decode(bits); }
    };
};

struct CacheF32 {
    using Stored = float;

    __device__ static float decode(Stored stored) { return stored; }
    __device__ static Stored encode(float value) { return value; }

    struct Eight {
        float4 low;
        float4 high;
        __device__ void load(const Stored* from) {
            low = reinterpret_cast<const float4*>(from)[0];
            high = reinterpret_cast<const float4*>(from)[1];
        }
        __device__ void unpack(float* values) const {
            values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
            values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
        }
    };
    struct Two {
        float2 both;
        __device__ void load(const Stored* from) { both = *reinterpret_cast<const float2*>(from); }
        __device__ void unpack(float* values) const { values[0] = both.x, values[1] = both.y; }
    };
    struct One {
        float value;
        __device__ void load(const Stored* from) { value = *from; }
        __device__ void unpack(float* values) const { values[0] = value; }
    };
};

// use(Cache()) for the type of a cache.
template <typename Use>
void with_cache(op::CacheType type, Use use) {
    if (type == op::CacheType::f16) return use(CacheF16());
    use(CacheF32());
}

// Puts a value into a cache of either type.
__device__ inline void store_cached(op::CacheType type, void* cache, std::int64_t at, float value) {
    if (type == op::CacheType::f16) {
        static_cast<std::uint16_t*>(cache)[at] = float_to_half(value);
    } else {
        static_cast<float*>(cache)[at] = value;
    }
}

}  // namespace strata::cuda
