// The codebooks of the IQ formats, which give a code of a few bits a vector of magnitudes. The
// tables in codebooks/ are written by tools/reference/quant_codebooks.py.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/codebooks/iq4.h"

namespace strata::quant {

// A vector is aligned to its size, so that one load takes it.
template <std::size_t kWidth>
struct alignas(kWidth) GridVector {
    std::array<std::int8_t, kWidth> values;
};

template <std::size_t kWidth, std::size_t kCount>
using Grid = std::array<GridVector<kWidth>, kCount>;

extern const Grid<8, 2048> kIq1Grid;    // of -1, 0, 1
extern const Grid<8, 256> kIq2XxsGrid;  // of 8, 25, 43
extern const Grid<8, 512> kIq2XsGrid;   // of 8, 25, 43
extern const Grid<8, 1024> kIq2SGrid;   // of 8, 25, 43
extern const Grid<4, 256> kIq3XxsGrid;  // of 4, 12, 20, ..., 52, 62
extern const Grid<4, 512> kIq3SGrid;    // of 1, 3, 5, ..., 15

// The signs of eight values, a bit each, set where negative, from the seven bits that are stored:
// the number of negative values is even.
constexpr std::uint32_t even_signs(std::uint32_t seven_bits) {
    return seven_bits | static_cast<std::uint32_t>(std::popcount(seven_bits) & 1) << 7;
}

// out[j] = scale * values[j], negated where bit j of `signs` is set.
template <std::size_t kWidth>
void decode_vector(const GridVector<kWidth>& vector, float scale, std::uint32_t signs, float* out) {
    for (std::size_t j = 0; j < kWidth; ++j) {
        const float value = scale * static_cast<float>(vector.values[j]);
        out[j] = (signs >> j & 1) != 0 ? -value : value;
    }
}

// The same with scale 1, in integers, all values at once.
template <std::size_t kWidth>
void signed_codes(const GridVector<kWidth>& vector, std::uint32_t signs, std::int8_t* out) {
    using Bytes = std::int8_t __attribute__((vector_size(8)));
    constexpr Bytes kBits = {1, 2, 4, 8, 16, 32, 64, -128};
    Bytes values = {};
    std::memcpy(&values, vector.values.data(), kWidth);
    const Bytes all = Bytes{} + static_cast<std::int8_t>(signs);
    const Bytes negative = (all & kBits) != 0;
    const Bytes codes = (values ^ negative) - negative;
    std::memcpy(out, &codes, kWidth);
}

}  // namespace strata::quant
