// What the unpackers for AVX-512 share. The packed bytes of 16 rows are brought side by side first,
// four bytes a lane, so that every later step works on all rows at once and the panel needs no
// second transposition.
#pragma once

#include "backend/cpu/quantized/avx512.h"
#include "backend/cpu/quantized/panel.h"
#include "quant/codebooks.h"

#if defined(__x86_64__)

namespace strata::cpu {

STRATA_AVX512_INLINE void store(Panel& panel, int step, __m512i codes) {
    _mm512_store_si512(panel.codes[step], codes);
}

// 16 values in each 128 bits, for a shuffle by codes.
STRATA_AVX512_INLINE __m512i spread_table(const std::int8_t* values, int offset) {
    __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
    table = _mm_add_epi8(table, _mm_set1_epi8(static_cast<char>(offset)));
    return _mm512_broadcast_i32x4(table);
}

STRATA_AVX512_INLINE __m512i low_halves(__m512i bytes) {
    return _mm512_and_si512(bytes, _mm512_set1_epi8(15));
}
STRATA_AVX512_INLINE __m512i high_halves(__m512i bytes) {
    return _mm512_and_si512(_mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(15));
}

// 16 bytes of halves that are numbers of a table's values: the low ones are the first 16 values,
// the high ones the others.
STRATA_AVX512_INLINE void unpack_halves(const std::byte* rows, std::int64_t stride, int step,
                                        __m512i table, Panel& panel) {
    __m512i bytes[4];
    load_columns(rows, stride, bytes);
#pragma GCC unroll 4
    for (int d = 0; d < 4; ++d) {
        store(panel, step + d, _mm512_shuffle_epi8(table, low_halves(bytes[d])));
        store(panel, step + 4 + d, _mm512_shuffle_epi8(table, high_halves(bytes[d])));
    }
}

// A Routine's unpack.
#define STRATA_UNPACK(name)                                                            \
    void name(const quant::TypeInfo& type, const std::byte* rows, std::int64_t stride, \
              int columns, const std::byte* ahead, Panel& panel)
STRATA_UNPACK(unpack_q2_k);
STRATA_UNPACK(unpack_q3_k);
STRATA_UNPACK(unpack_q4_k);
STRATA_UNPACK(unpack_q5_k);
STRATA_UNPACK(unpack_q6_k);
STRATA_UNPACK(unpack_iq4_xs);
STRATA_UNPACK(unpack_iq1_m);
STRATA_UNPACK(unpack_iq2_xxs);
STRATA_UNPACK(unpack_iq2_xs);
STRATA_UNPACK(unpack_iq2_s);
STRATA_UNPACK(unpack_iq3_xxs);
STRATA_UNPACK(unpack_iq3_s);
#undef STRATA_UNPACK

}  // namespace strata::cpu

#endif
