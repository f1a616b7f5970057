// The values of IQ4_NL and IQ4_XS.
// Made by tools/reference/quant_codebooks.py from the Python package gguf 0.19.0; not edited.
// clang-format off
#pragma once

#include <array>
#include <cstdint>

namespace strata::quant {

inline constexpr std::array<std::int8_t, 16> kIq4Values = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace strata::quant
