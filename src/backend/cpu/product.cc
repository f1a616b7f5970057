// Bounded by the loads of both rows from the first cache level where few rows are taken together,
// by multiply-add throughput from a few on. One source for every vector width: the widths differ in
// how many of the kLanes partial sums a register holds, never in which value goes to which sum.
#include "backend/cpu/product.h"

#include <cstring>

namespace strata::cpu {
namespace {

using F4 = float __attribute__((vector_size(16)));

template <typename V>
constexpr int kWidth = sizeof(V) / sizeof(float);

template <typename V>
[[gnu::always_inline]] inline void load(const float* from, V& to) {
    std::memcpy(&to, from, sizeof(V));
}

[[gnu::always_inline]] inline float finish(float* lane, const float* a, const float* b,
                                           std::int64_t rest) {
    for (std::int64_t i = 0; i < rest; ++i) lane[i] += a[i] * b[i];
    for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
    }
    return lane[0];
}

// A x B dot products at once; A * B * kLanes partial sums should fit the registers.
template <typename V, int A, int B>
[[gnu::always_inline]] inline void tile(const float* const* a, const float* const* b,
                                        std::int64_t n, float* out, std::int64_t step_a,
                                        std::int64_t step_b) {
    constexpr int kParts = kLanes / kWidth<V>;
    V sum[A][B][kParts] = {};
    const std::int64_t whole = n / kLanes * kLanes;
    for (std::int64_t i = 0; i < whole; i += kLanes) {
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) {
            V right[B];
#pragma GCC unroll 4
            for (int s = 0; s < B; ++s) load(b[s] + i + part * kWidth<V>, right[s]);
#pragma GCC unroll 4
            for (int r = 0; r < A; ++r) {
                V left;
                load(a[r] + i + part * kWidth<V>, left);
#pragma GCC unroll 4
                for (int s = 0; s < B; ++s) sum[r][s][part] += left * right[s];
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < A; ++r) {
#pragma GCC unroll 4
        for (int s = 0; s < B; ++s) {
            float lane[kLanes];
#pragma GCC unroll 4
            for (int part = 0; part < kParts; ++part) {
                std::memcpy(lane + part * kWidth<V>, &sum[r][s][part], sizeof(V));
            }
            out[r * step_a + s * step_b] = finish(lane, a[r] + whole, b[s] + whole, n - whole);
        }
    }
}

template <typename V, int A, int B>
[[gnu::always_inline]] inline void all_products(const Rows& a, const Rows& b, std::int64_t n,
                                                float* out, std::int64_t step_a,
                                                std::int64_t step_b) {
    for (std::int64_t j = 0; j < b.count;) {
        const bool wide = b.count - j >= B;
        const float* right[B];
        for (int s = 0; s < (wide ? B : 1); ++s) right[s] = b.row(j + s);
        for (std::int64_t i = 0; i < a.count;) {
            const bool tall = a.count - i >= A;
            const float* left[A];
            for (int r = 0; r < (tall ? A : 1); ++r) left[r] = a.row(i + r);
            float* to = out + i * step_a + j * step_b;
            if (tall && wide) {
                tile<V, A, B>(left, right, n, to, step_a, step_b);
            } else if (tall) {
                tile<V, A, 1>(left, right, n, to, step_a, step_b);
            } else if (wide) {
                tile<V, 1, B>(left, right, n, to, step_a, step_b);
            } else {
                tile<V, 1, 1>(left, right, n, to, step_a, step_b);
            }
            i += tall ? A : 1;
        }
        j += wide ? B : 1;
    }
}

template <typename V>
[[gnu::always_inline]] inline void sum_rows(const float* weight, const Rows& rows,
                                            std::int64_t width, float* out) {
    constexpr int kParts = 4;
    constexpr int kStrip = kParts * kWidth<V>;
    std::int64_t j = 0;
    for (; j + kStrip <= width; j += kStrip) {
        V sum[kParts];
        for (int part = 0; part < kParts; ++part) load(out + j + part * kWidth<V>, sum[part]);
        for (std::int64_t i = 0; i < rows.count; ++i) {
            const float* row = rows.row(i) + j;
            for (int part = 0; part < kParts; ++part) {
                V value;
                load(row + part * kWidth<V>, value);
                sum[part] += weight[i] * value;
            }
        }
        for (int part = 0; part < kParts; ++part) {
            std::memcpy(out + j + part * kWidth<V>, &sum[part], sizeof(V));
        }
    }
    for (; j < width; ++j) {
        float sum = out[j];
        for (std::int64_t i = 0; i < rows.count; ++i) sum += weight[i] * rows.row(i)[j];
        out[j] = sum;
    }
}

struct Routines {
    void (*products)(const Rows&, const Rows&, std::int64_t, float*, std::int64_t, std::int64_t);
    void (*add_rows)(const float*, const Rows&, std::int64_t, float*);
};

void products_4(const Rows& a, const Rows& b, std::int64_t n, float* out, std::int64_t step_a,
                std::int64_t step_b) {
    all_products<F4, 2, 1>(a, b, n, out, step_a, step_b);
}
void add_rows_4(const float* weight, const Rows& rows, std::int64_t width, float* out) {
    sum_rows<F4>(weight, rows, width, out);
}

#if defined(__x86_64__)

using F8 = float __attribute__((vector_size(32)));
using F16 = float __attribute__((vector_size(64)));

[[gnu::target("avx2")]] void products_8(const Rows& a, const Rows& b, std::int64_t n, float* out,
                                        std::int64_t step_a, std::int64_t step_b) {
    all_products<F8, 2, 2>(a, b, n, out, step_a, step_b);
}
[[gnu::target("avx2")]] void add_rows_8(const float* weight, const Rows& rows, std::int64_t width,
                                        float* out) {
    sum_rows<F8>(weight, rows, width, out);
}

[[gnu::target("avx512f")]] void products_16(const Rows& a, const Rows& b, std::int64_t n,
                                            float* out, std::int64_t step_a, std::int64_t step_b) {
    all_products<F16, 4, 4>(a, b, n, out, step_a, step_b);
}
[[gnu::target("avx512f")]] void add_rows_16(const float* weight, const Rows& rows,
                                            std::int64_t width, float* out) {
    sum_rows<F16>(weight, rows, width, out);
}

Routines fastest() {
    if (__builtin_cpu_supports("avx512f")) return {products_16, add_rows_16};
    if (__builtin_cpu_supports("avx2")) return {products_8, add_rows_8};
    return {products_4, add_rows_4};
}

#else

Routines fastest() { return {products_4, add_rows_4}; }

#endif

const Routines& routines() {
    static const Routines chosen = fastest();
    return chosen;
}

}  // namespace

float dot(const float* a, const float* b, std::int64_t n) {
    float result = 0.0f;
    tile<F4, 1, 1>(&a, &b, n, &result, 0, 0);
    return result;
}

void products(const Rows& a, const Rows& b, std::int64_t n, float* out, std::int64_t step_a,
              std::int64_t step_b) {
    routines().products(a, b, n, out, step_a, step_b);
}

void add_rows(const float* weight, const Rows& rows, std::int64_t width, float* out) {
    routines().add_rows(weight, rows, width, out);
}

}  // namespace strata::cpu
