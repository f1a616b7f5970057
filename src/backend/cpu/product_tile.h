// Tiles of dot products, for the files product_*.cc, each of which includes this once, after it has
// defined STRATA_TARGET, the instructions of its functions, and in namespace strata::cpu, unnamed:
//   Vector                    kWidth lanes, kLanes / kWidth of them hold the partial sums
//   zero(), spread(one), load(from), store(to, v), multiply_add(a, b, sum)
// with load for pointers to float, Single, Half and Bf16.
#pragma once

#include <cstdint>
#include <cstring>

#include "backend/cpu/product.h"
#include "backend/cpu/product_routines.h"
#include "quant/half.h"

namespace strata::cpu {
namespace {

STRATA_TARGET inline float widen(const Single& value) {
    float wide = 0;
    std::memcpy(&wide, &value, sizeof(wide));
    return wide;
}
STRATA_TARGET inline float widen(const Half& value) {
    std::uint16_t half = 0;
    std::memcpy(&half, &value, sizeof(half));
    return quant::f16_to_f32(half);
}
STRATA_TARGET inline float widen(const Bf16& value) {
    std::uint16_t half = 0;
    std::memcpy(&half, &value, sizeof(half));
    return quant::bf16_to_f32(half);
}

// The partial sums' last values and their sum, in one order for all.
STRATA_TARGET inline float finish(float* lane, const float* a, const float* b, std::int64_t rest) {
    for (std::int64_t i = 0; i < rest; ++i) lane[i] = __builtin_fmaf(a[i], b[i], lane[i]);
    for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
    }
    return lane[0];
}

// A x B dot products at once; A * B * kLanes partial sums should fit the registers. Values of `a`
// that lie `ahead` further on are asked for, unless that is 0.
template <typename T, int A, int B>
STRATA_TARGET inline void tile(const T* const* a, const float* const* b, std::int64_t n,
                               std::int64_t ahead, float* out, std::int64_t step_a,
                               std::int64_t step_b) {
    constexpr int kParts = kLanes / kWidth;
    Vector sum[A][B][kParts];
#pragma GCC unroll 8
    for (int r = 0; r < A; ++r) {
#pragma GCC unroll 8
        for (int s = 0; s < B; ++s) {
#pragma GCC unroll 16
            for (int part = 0; part < kParts; ++part) sum[r][s][part] = zero();
        }
    }
    const std::int64_t whole = n / kLanes * kLanes;
    constexpr std::int64_t kLine = 64 / sizeof(T);
    for (std::int64_t i = 0; i < whole; i += kLanes) {
        if (ahead != 0 && i % kLine == 0) {
#pragma GCC unroll 8
            for (int r = 0; r < A; ++r) __builtin_prefetch(a[r] + ahead + i, 0, 2);
        }
#pragma GCC unroll 16
        for (int part = 0; part < kParts; ++part) {
            Vector right[B];
#pragma GCC unroll 8
            for (int s = 0; s < B; ++s) right[s] = load(b[s] + i + part * kWidth);
#pragma GCC unroll 8
            for (int r = 0; r < A; ++r) {
                const Vector left = load(a[r] + i + part * kWidth);
#pragma GCC unroll 8
                for (int s = 0; s < B; ++s) {
                    sum[r][s][part] = multiply_add(left, right[s], sum[r][s][part]);
                }
            }
        }
    }
    for (int r = 0; r < A; ++r) {
        float tail[kLanes];
        for (std::int64_t i = whole; i < n; ++i) tail[i - whole] = widen(a[r][i]);
        for (int s = 0; s < B; ++s) {
            float lane[kLanes];
            for (int part = 0; part < kParts; ++part) store(lane + part * kWidth, sum[r][s][part]);
            out[r * step_a + s * step_b] = finish(lane, tail, b[s] + whole, n - whole);
        }
    }
}

// Rows `stride` values of T apart, or of a list.
template <typename T>
struct RowsOf {
    const T* data;
    std::int64_t stride;
    std::int64_t count;
    const std::int32_t* at;
    bool streamed;

    const T* row(std::int64_t i) const { return data + (at == nullptr ? i : at[i]) * stride; }
};

template <typename T, int A, int B>
STRATA_TARGET inline void column_of_tiles(const RowsOf<T>& a, const float* const* right,
                                          std::int64_t n, float* out, std::int64_t step_a,
                                          std::int64_t step_b) {
    // Of memory that is read once, the tiles that follow; at least so many bytes ahead.
    constexpr std::int64_t kAhead = 8192;
    const auto bytes = static_cast<std::int64_t>(A * sizeof(T)) * a.stride;
    const std::int64_t ahead =
        a.streamed && bytes > 0 ? (kAhead + bytes - 1) / bytes * A * a.stride : 0;
    std::int64_t i = 0;
    for (; i + A <= a.count; i += A) {
        const T* left[A];
        for (int r = 0; r < A; ++r) left[r] = a.row(i + r);
        tile<T, A, B>(left, right, n, ahead, out + i * step_a, step_a, step_b);
    }
    for (; i < a.count; ++i) {
        const T* left = a.row(i);
        tile<T, 1, B>(&left, right, n, ahead, out + i * step_a, step_a, step_b);
    }
}

template <typename T, int A, int B>
STRATA_TARGET void all_products(const RowsOf<T>& a, const Rows& b, std::int64_t n, float* out,
                                std::int64_t step_a, std::int64_t step_b) {
    const float* right[B];
    std::int64_t j = 0;
    for (; j + B <= b.count; j += B) {
        for (int s = 0; s < B; ++s) right[s] = b.row(j + s);
        column_of_tiles<T, A, B>(a, right, n, out + j * step_b, step_a, step_b);
    }
    for (; j < b.count; ++j) {
        right[0] = b.row(j);
        column_of_tiles<T, A, 1>(a, right, n, out + j * step_b, step_a, step_b);
    }
}

template <int A, int B>
STRATA_TARGET void stored_products(const StoredRows& a, const Rows& b, std::int64_t n, float* out,
                                   std::int64_t step_a, std::int64_t step_b) {
    if (a.type == quant::Type::bf16) {
        const RowsOf<Bf16> rows{static_cast<const Bf16*>(a.data), a.stride, a.count, nullptr, true};
        all_products<Bf16, A, B>(rows, b, n, out, step_a, step_b);
    } else if (a.type == quant::Type::f16) {
        const RowsOf<Half> rows{static_cast<const Half*>(a.data), a.stride, a.count, nullptr, true};
        all_products<Half, A, B>(rows, b, n, out, step_a, step_b);
    } else {
        const RowsOf<Single> rows{static_cast<const Single*>(a.data), a.stride, a.count, nullptr,
                                  true};
        all_products<Single, A, B>(rows, b, n, out, step_a, step_b);
    }
}

template <int A, int B>
STRATA_TARGET void float_products(const Rows& a, const Rows& b, std::int64_t n, float* out,
                                  std::int64_t step_a, std::int64_t step_b) {
    const RowsOf<Single> rows{reinterpret_cast<const Single*>(a.data), a.stride, a.count, a.at,
                              false};
    all_products<Single, A, B>(rows, b, n, out, step_a, step_b);
}

STRATA_TARGET void sum_rows(const float* weight, const Rows& rows, std::int64_t width, float* out) {
    constexpr int kParts = kWidth == 1 ? 1 : 4;
    constexpr int kStrip = kParts * kWidth;
    std::int64_t j = 0;
    for (; j + kStrip <= width; j += kStrip) {
        Vector sum[kParts];
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) sum[part] = load(out + j + part * kWidth);
        for (std::int64_t i = 0; i < rows.count; ++i) {
            const float* row = rows.row(i) + j;
            const Vector factor = spread(weight[i]);
#pragma GCC unroll 4
            for (int part = 0; part < kParts; ++part) {
                sum[part] = multiply_add(factor, load(row + part * kWidth), sum[part]);
            }
        }
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) store(out + j + part * kWidth, sum[part]);
    }
    for (; j < width; ++j) {
        float sum = out[j];
        for (std::int64_t i = 0; i < rows.count; ++i) {
            sum = __builtin_fmaf(weight[i], rows.row(i)[j], sum);
        }
        out[j] = sum;
    }
}

}  // namespace
}  // namespace strata::cpu
