// Every format of blocks, as units of 32 columns.
#pragma once

#include "backend/cuda/unpack.cuh"
#include "backend/cuda/unpack_iq.cuh"
#include "backend/cuda/unpack_k.cuh"

// use(name) for every format of blocks.
#define STRATA_BLOCK_TYPES(use)                                                                   \
    use(q8_0) use(q4_0) use(q5_0) use(q5_1) use(mxfp4) use(nvfp4) use(q2_0) use(q2_k) use(q3_k)   \
        use(q4_k) use(q5_k) use(q6_k) use(iq1_m) use(iq2_xxs) use(iq2_xs) use(iq2_s) use(iq3_xxs) \
            use(iq3_s) use(iq4_nl) use(iq4_xs)

namespace strata::cuda {

// Column `c` of a unit, with the bits that the format's decode gives: scales have so few bits that
// their products with codes are exact.
template <typename Own>
__device__ inline float unit_value(const Unit& unit, int c) {
    unsigned four = 0;
    for (int i = 0; i < 8; ++i) {
        if (i == c / 4) four = static_cast<unsigned>(unit.codes[i]);
    }
    const int code = static_cast<std::int8_t>(byte_of(four, c % 4)) - Own::kOffset;
    const bool high = c >= 16;
    const float value = (high ? unit.scale[1] : unit.scale[0]) * static_cast<float>(code);
    if constexpr (!Own::kMinima) return value;
    return value - (high ? unit.minimum[1] : unit.minimum[0]);
}

}  // namespace strata::cuda
