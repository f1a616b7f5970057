// Sums of products of F32 rows. One fixed order of summation, whatever the machine's vector width
// and however many rows are taken together: value i of a row goes to partial sum i mod kLanes, in a
// fused multiply-add, and the partial sums are added in halves. So a product never depends on what
// it is computed with.
#pragma once

#include <cstdint>

#include "backend/cpu/instructions.h"
#include "quant/type.h"

namespace strata::cpu {

inline constexpr int kLanes = 16;

// `count` rows, row i at data + at[i] * stride, or data + i * stride where there is no list.
struct Rows {
    const float* data = nullptr;
    std::int64_t stride = 0;
    std::int64_t count = 0;
    const std::int32_t* at = nullptr;

    const float* row(std::int64_t i) const { return data + (at == nullptr ? i : at[i]) * stride; }
};

// Rows of F32, F16 or BF16 as a file stores them, `stride` values apart, of any alignment.
struct StoredRows {
    const void* data = nullptr;
    quant::Type type = quant::Type::f32;
    std::int64_t stride = 0;
    std::int64_t count = 0;
};

float dot(const float* a, const float* b, std::int64_t n);

// out[i * step_a + j * step_b] = dot(a.row(i), b.row(j), n). Rows of `a` are kept in registers for
// longer, so that it should be the side with few rows or with rows far away.
void products(const Rows& a, const Rows& b, std::int64_t n, float* out, std::int64_t step_a,
              std::int64_t step_b);

// The same with stored rows, whose values are exact.
void products(const StoredRows& a, const Rows& b, std::int64_t n, Instructions instructions,
              float* out, std::int64_t step_a, std::int64_t step_b);

// out[j] += weight[0] * rows[0][j] + weight[1] * rows[1][j] + ..., in fused
// multiply-adds in this order, j < width.
void add_rows(const float* weight, const Rows& rows, std::int64_t width, float* out);

// `count` rows of weights, row q at data + q * stride.
struct Weights {
    const float* data = nullptr;
    std::int64_t stride = 0;
    std::int64_t count = 0;

    Weights from(std::int64_t q) const { return {data + q * stride, stride, count - q}; }
};

// The same with each row of weights, to out + q * step.
void add_rows(const Weights& weights, const Rows& rows, std::int64_t width, float* out,
              std::int64_t step);

}  // namespace strata::cpu
