// Products of F32, F16 and BF16 weights with many input rows, the same bits as in product.h at the
// rate of the multiply-adds: lanes hold weight rows, and the columns that share a partial sum
// (column mod kLanes) follow one another, so that one register is one partial sum of 16 rows.
#pragma once

#include <cstdint>

#include "backend/cpu/product.h"

namespace strata::cpu {

// Input rows of a tile; weight rows of a panel.
inline constexpr int kPackedTile = 12;
inline constexpr int kPackedPanel = 2 * kLanes;

// Places for the columns of one partial sum. One more than is used, so that the partial sums do
// not lie a power of two apart, where they would drive each other out of the caches.
constexpr std::int64_t packed_places(std::int64_t n) { return (n + kLanes - 1) / kLanes + 1; }

// Places for all columns: column c lies at c % kLanes * packed_places(n) + c / kLanes.
constexpr std::int64_t packed_columns(std::int64_t n) { return kLanes * packed_places(n); }

// Floats that `rows` rows of n take: whole tiles, [tile][place][kPackedTile].
constexpr std::int64_t packed_size(std::int64_t rows, std::int64_t n) {
    return (rows + kPackedTile - 1) / kPackedTile * kPackedTile * packed_columns(n);
}

// Packs one tile; its missing rows are zeros.
void pack_tile(const Rows& x, std::int64_t tile, std::int64_t n, float* to);

// out[(i / kLanes * rows + t) * kLanes + i % kLanes] = a.row(i) . row t of `packed`, for at most
// kPackedPanel rows of `a`; whole registers of out are written. `panel` is memory for
// kPackedPanel * packed_columns(n) floats. Needs AVX-512.
void packed_products(const StoredRows& a, const float* packed, std::int64_t rows, std::int64_t n,
                     float* panel, float* out);

}  // namespace strata::cpu
