#if defined(__x86_64__)

#include <immintrin.h>

#include "backend/cpu/product_routines.h"

#define STRATA_TARGET [[gnu::target("avx2,fma,f16c")]]

namespace strata::cpu {
namespace {

using Vector = __m256;
constexpr int kWidth = 8;
constexpr bool kAddsFour = false;

STRATA_TARGET inline Vector zero() { return _mm256_setzero_ps(); }
STRATA_TARGET inline Vector spread(float value) { return _mm256_set1_ps(value); }
STRATA_TARGET inline Vector load(const float* from) { return _mm256_loadu_ps(from); }
STRATA_TARGET inline Vector load(const Single* from) {
    return _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
STRATA_TARGET inline Vector load(const Half* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
STRATA_TARGET inline Vector load(const Bf16* from) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
STRATA_TARGET inline void store(float* to, Vector v) { _mm256_storeu_ps(to, v); }
STRATA_TARGET inline Vector multiply_add(Vector a, Vector b, Vector sum) {
    return _mm256_fmadd_ps(a, b, sum);
}

}  // namespace
}  // namespace strata::cpu

#include "backend/cpu/product_tile.inc"

namespace strata::cpu {

ProductRoutines avx2_products() { return {float_products<2, 2>, stored_products<2, 2>, sum_rows}; }

}  // namespace strata::cpu

#endif
