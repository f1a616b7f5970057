// E2M1, the four-bit float of MXFP4 and NVFP4: a sign, two bits of exponent, one of fraction.
#pragma once

#include <array>
#include <cstdint>

namespace strata::quant {

// Twice the value of each code, which makes them integers; the scales are halved for it.
inline constexpr std::array<std::int8_t, 16> kE2m1Doubled = {0, 1,  2,  3,  4,  6,  8,  12,
                                                             0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace strata::quant
