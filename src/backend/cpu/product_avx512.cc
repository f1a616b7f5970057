#if defined(__x86_64__)

#include <immintrin.h>

#include "backend/cpu/product_routines.h"

#define STRATA_TARGET [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]]

namespace strata::cpu {
namespace {

using Vector = __m512;
constexpr int kWidth = 16;

STRATA_TARGET inline Vector zero() { return _mm512_setzero_ps(); }
STRATA_TARGET inline Vector spread(float value) { return _mm512_set1_ps(value); }
STRATA_TARGET inline Vector load(const float* from) { return _mm512_loadu_ps(from); }
STRATA_TARGET inline Vector load(const Single* from) { return _mm512_loadu_ps(from); }
STRATA_TARGET inline Vector load(const Half* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
STRATA_TARGET inline Vector load(const Bf16* from) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
STRATA_TARGET inline void store(float* to, Vector v) { _mm512_storeu_ps(to, v); }
STRATA_TARGET inline Vector multiply_add(Vector a, Vector b, Vector sum) {
    return _mm512_fmadd_ps(a, b, sum);
}

}  // namespace
}  // namespace strata::cpu

#include "backend/cpu/product_tile.inc"

namespace strata::cpu {

ProductRoutines avx512_products() {
    return {float_products<4, 4>, stored_products<4, 4>, sum_rows};
}

}  // namespace strata::cpu

#endif
