// Floats four at a time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace strata::cuda {

// Whether four from `data` on can be read or written at once; so can those at multiples of four.
inline bool in_fours(const float* data) {
    return reinterpret_cast<std::uintptr_t>(data) % sizeof(float4) == 0;
}

__device__ inline float4 four_at(const float* data) {
    return *reinterpret_cast<const float4*>(data);
}

}  // namespace strata::cuda
