// For machines that have nothing wider, and for the tests.
#include <cmath>
#include <cstring>

#include "backend/cpu/product_routines.h"
#include "quant/half.h"

namespace strata::cpu {
namespace {

using Vector = float;
constexpr int kWidth = 1;
constexpr bool kAddsFour = false;

Vector zero() { return 0.0f; }
Vector spread(float value) { return value; }
Vector load(const float* from) { return *from; }
Vector load(const Single* from) {
    float value = 0;
    std::memcpy(&value, from, sizeof(value));
    return value;
}
Vector load(const Half* from) {
    std::uint16_t half = 0;
    std::memcpy(&half, from, sizeof(half));
    return quant::f16_to_f32(half);
}
Vector load(const Bf16* from) {
    std::uint16_t half = 0;
    std::memcpy(&half, from, sizeof(half));
    return quant::bf16_to_f32(half);
}
void store(float* to, Vector v) { *to = v; }
Vector multiply_add(Vector a, Vector b, Vector sum) { return std::fma(a, b, sum); }

}  // namespace
}  // namespace strata::cpu

#define STRATA_TARGET
#include "backend/cpu/product_tile.inc"

namespace strata::cpu {

ProductRoutines scalar_products() {
    return {float_products<2, 1>, stored_products<2, 1>, sum_rows};
}

}  // namespace strata::cpu
