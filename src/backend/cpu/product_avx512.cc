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

constexpr bool kAddsFour = true;
STRATA_TARGET inline void add_four(Vector a, Vector b, Vector c, Vector d, float* to) {
    // Lane i and lane i + 8 of a in the low half, of b in the high one.
    const Vector ab =
        _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    const Vector cd =
        _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    Vector all =
        _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    all = _mm512_add_ps(all, _mm512_permute_ps(all, 0x4e));
    all = _mm512_add_ps(all, _mm512_permute_ps(all, 0xb1));
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(to, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, all)));
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
