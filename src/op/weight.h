// Weight matrices as the model file stores them, and the numerics of products with them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/type.h"

namespace strata::op {

// W x, wherever an op multiplies a row x of F32 with a weight W [rows = out, cols = in]:
//
// F32, F16, BF16    x as it is, F32 products and sums.
// types of blocks   x is rounded to eight bits first (those with quant::TypeInfo::integers):
//
//   Neighbours of x, as many as share a scale in the type but at least 32, form a group; groups
//   start at the weight's first column. With m the largest magnitude of the group, in F32 and each
//   operation rounded:
//     a = m / 127;   q_i = x_i * (127 / m), to the nearest integer, ties to even
//   Where 127 / m is not finite: a = 0 and q = 0. Where x has a NaN or an infinity: a = NaN.
//   The product is that of W with the values a * q_i, its sums over a group of W (quant::Integers)
//   exact, the rest F32, group after group:
//     y = y + sum(part * code * q) * (scale * a);   y = y - sum(part_minimum * q) * (minimum * a)
//   each a fused multiply-add, the second where the type has minima.
//
// On the prompt route (Table::prompts) instead, in every type: x and the values of W are rounded to
// BF16 (to the nearest, ties to even), their products are exact, the sums F32. That is nearer to x
// than eight bits are, and what tensor cores take.
//
// A weight with a factor is that many times what is stored: y is multiplied by it last.
//
// So on either route a product depends on the row and the weight alone. Where an op says "exact",
// neither is rounded.

// `rows` rows of `cols` values in blocks of `type`, row after row without padding, in memory that
// the op's device reads: of device::Device::resident for a table, whose rows an op looks up, else
// of its resident_matrix.
struct Weight {
    const std::byte* data = nullptr;
    quant::Type type = quant::Type::f32;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t row_bytes = 0;
    float factor = 1;  // of products; rows that are only decoded have none

    constexpr const std::byte* row(std::int64_t r) const { return data + r * row_bytes; }
    bool empty() const { return data == nullptr; }
};

// Row vectors of F32: norm gains, biases, decays.
using Gain = const float*;

}  // namespace strata::op
