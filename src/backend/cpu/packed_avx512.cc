// Bounded by the multiply-adds: two registers of weights meet kPackedTile broadcast inputs.
#include "backend/cpu/packed.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "quant/half.h"

#define STRATA_TARGET [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]]

namespace strata::cpu {
namespace {

constexpr int kVectors = kPackedPanel / kLanes;

// Columns begin .. end-1, begin a multiple of kLanes, of four rows at `from` to the first four of
// the `width` floats that each place has at `to`.
void turn_rows(const float* const* from, std::int64_t begin, std::int64_t end, std::int64_t n,
               std::int64_t width, float* to) {
    const std::int64_t apart = packed_places(n) * width;
    to += begin / kLanes * width;
    const std::int64_t count = end - begin;
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes, to += width) {
        for (int part = 0; part < kLanes; part += 4) {
            __m128 row[4];
            for (int r = 0; r < 4; ++r) row[r] = _mm_loadu_ps(from[r] + i + part);
            _MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
            for (int j = 0; j < 4; ++j) _mm_storeu_ps(to + (part + j) * apart, row[j]);
        }
    }
    for (; i < count; ++i) {
        for (int r = 0; r < 4; ++r) to[i % kLanes * apart + r] = from[r][i];
    }
}

STRATA_TARGET void widen(const StoredRows& a, std::int64_t row, std::int64_t first,
                         std::int64_t count, float* to) {
    if (a.type == quant::Type::f32) {
        const auto* data = static_cast<const std::byte*>(a.data);
        std::memcpy(to, data + 4 * (row * a.stride + first), static_cast<std::size_t>(4 * count));
        return;
    }
    const std::byte* from = static_cast<const std::byte*>(a.data) + 2 * (row * a.stride + first);
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 2 * i));
        const __m512 wide =
            a.type == quant::Type::f16
                ? _mm512_cvtph_ps(halves)
                : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
        _mm512_storeu_ps(to + i, wide);
    }
    for (; i < count; ++i) {
        std::uint16_t half = 0;
        std::memcpy(&half, from + 2 * i, sizeof(half));
        to[i] = a.type == quant::Type::f16 ? quant::f16_to_f32(half) : quant::bf16_to_f32(half);
    }
}

// The panel [place][kPackedPanel]; missing rows are zeros.
void pack_panel(const StoredRows& a, std::int64_t n, float* panel) {
    constexpr std::int64_t kStrip = 256;
    for (std::int64_t at = 0; at < n; at += kStrip) {
        const std::int64_t count = std::min(kStrip, n - at);
        for (std::int64_t first = 0; first < kPackedPanel; first += 4) {
            float strip[4][kStrip];
            const float* rows[4] = {strip[0], strip[1], strip[2], strip[3]};
            for (std::int64_t r = first; r < first + 4; ++r) {
                if (r < a.count) {
                    widen(a, r, at, count, strip[r - first]);
                } else {
                    std::fill_n(strip[r - first], count, 0.0f);
                }
            }
            turn_rows(rows, at, at + count, n, kPackedPanel, panel + first);
        }
    }
}

using Sums = __m512[kVectors][kPackedTile];

// The products of `steps` columns, one partial sum.
STRATA_TARGET inline void add_columns(const float* panel, const float* x, std::int64_t steps,
                                      Sums& sum) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 12
        for (int t = 0; t < kPackedTile; ++t) sum[v][t] = _mm512_setzero_ps();
    }
    for (std::int64_t i = 0; i < steps; ++i, panel += kPackedPanel, x += kPackedTile) {
        const __m512 first = _mm512_loadu_ps(panel);
        const __m512 second = _mm512_loadu_ps(panel + kLanes);
#pragma GCC unroll 12
        for (int t = 0; t < kPackedTile; ++t) {
            const __m512 own = _mm512_set1_ps(x[t]);
            sum[0][t] = _mm512_fmadd_ps(first, own, sum[0][t]);
            sum[1][t] = _mm512_fmadd_ps(second, own, sum[1][t]);
        }
    }
}

// Tiles that meet a partial sum's part of the panel while it is in a near cache.
constexpr int kTogether = 4;

// All partial sums of `count` tiles, added in halves as product.h does: in the order in which they
// are made here, each joins those before it as soon as its half is whole.
STRATA_TARGET void multiply_tiles(const float* panel, const float* x, int count, std::int64_t n,
                                  Sums* total) {
    constexpr int kOrder[kLanes] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
    static_assert(kLanes == 16);
    Sums waiting[kTogether][4];
    for (int made = 0; made < kLanes; ++made) {
        const int part = kOrder[made];
        const std::int64_t first = part * packed_places(n);
        const std::int64_t steps = n / kLanes + (part < n % kLanes ? 1 : 0);
        for (int tile = 0; tile < count; ++tile) {
            const float* own = x + (tile * packed_columns(n) + first) * kPackedTile;
            Sums sum;
            add_columns(panel + first * kPackedPanel, own, steps, sum);
            int depth = __builtin_popcount(static_cast<unsigned>(made));
            for (int rest = made; (rest & 1) != 0; rest >>= 1) {
                --depth;
                for (int v = 0; v < kVectors; ++v) {
                    for (int t = 0; t < kPackedTile; ++t) {
                        sum[v][t] = _mm512_add_ps(waiting[tile][depth][v][t], sum[v][t]);
                    }
                }
            }
            std::memcpy(made + 1 == kLanes ? total[tile] : waiting[tile][depth], sum, sizeof(Sums));
        }
    }
}

}  // namespace

void pack_tile(const Rows& x, std::int64_t tile, std::int64_t n, float* to) {
    const std::int64_t first = tile * kPackedTile;
    to += first * packed_columns(n);
    const std::int64_t count = std::min<std::int64_t>(kPackedTile, x.count - first);
    if (count < kPackedTile) std::fill_n(to, kPackedTile * packed_columns(n), 0.0f);
    std::int64_t t = 0;
    for (; t + 4 <= count; t += 4) {
        const float* rows[4];
        for (int r = 0; r < 4; ++r) rows[r] = x.row(first + t + r);
        turn_rows(rows, 0, n, n, kPackedTile, to + t);
    }
    for (; t < count; ++t) {
        const float* row = x.row(first + t);
        for (std::int64_t i = 0; i < n; ++i) {
            to[(i % kLanes * packed_places(n) + i / kLanes) * kPackedTile + t] = row[i];
        }
    }
}

STRATA_TARGET void packed_products(const StoredRows& a, const float* packed, std::int64_t rows,
                                   std::int64_t n, float* panel, float* out) {
    STRATA_CHECK(a.count <= kPackedPanel);
    pack_panel(a, n, panel);
    const int vectors = a.count > kLanes ? 2 : 1;
    const std::int64_t tiles = (rows + kPackedTile - 1) / kPackedTile;
    for (std::int64_t tile = 0; tile < tiles; tile += kTogether) {
        const auto used = static_cast<int>(std::min<std::int64_t>(kTogether, tiles - tile));
        Sums sums[kTogether];
        multiply_tiles(panel, packed + tile * kPackedTile * packed_columns(n), used, n, sums);
        const std::int64_t first = tile * kPackedTile;
        const std::int64_t last = std::min(rows, first + used * kPackedTile);
        for (int v = 0; v < vectors; ++v) {
            for (std::int64_t t = first; t < last; ++t) {
                _mm512_storeu_ps(out + (v * rows + t) * kLanes,
                                 sums[(t - first) / kPackedTile][v][(t - first) % kPackedTile]);
            }
        }
    }
}

}  // namespace strata::cpu

#endif
