// 16-bit floats as files of features hold them.
#pragma once

#include <cstdint>

namespace strata {

// The IEEE 754 binary16 nearest to `value` (of two, the one with an even last bit) as its bits. Too
// large values become infinities, every NaN stays one.
std::uint16_t half_bits(float value);

}  // namespace strata
