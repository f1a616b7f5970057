#include "strata/half.h"

#include "quant/half.h"

namespace strata {

std::uint16_t half_bits(float value) { return quant::f32_to_f16(value); }

}  // namespace strata
