// Bounded by multiply-adds in a prompt and by the memory's traffic at few rows: a tile of columns,
// which columns alone share nothing with the rest, stays in the first cache level through all rows,
// so that the state is read once and written once a call.
#include <algorithm>
#include <cmath>

#include "backend/cpu/delta.h"
#include "backend/cpu/product.h"
#include "backend/cpu/vector.h"

namespace strata::cpu {
namespace {

// A norm of zero must not divide: model.md 2.5.
constexpr float kNormFloor = 1e-6f;

// Columns of the memory that go through all rows together: kTile * dk values fit the first level.
constexpr std::int64_t kTile = 64;

void unit(const float* x, std::int64_t n, float scale, float* out) {
    const float inverse = scale / std::sqrt(dot(x, x, n) + kNormFloor);
    for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * inverse;
}

// One row's step on some columns: pointers are at the first of them.
struct Step {
    const float* from = nullptr;  // the memory before, [dk] rows, dv apart
    float* to = nullptr;          // and after; may be the same
    std::int64_t dk = 0;
    std::int64_t dv = 0;
    const float* q = nullptr;  // null: o is not wanted
    const float* k = nullptr;
    const float* v = nullptr;
    float* out = nullptr;
    float alpha = 0;
    float beta = 0;
};

// d = beta (v - alpha M^T k);  M <- alpha M + k d^T;  o = M^T q, for kParts vectors of columns from
// `column` on. Each column's sums run over i in order, whatever V.
template <typename V, int kParts, bool kRead>
STRATA_INLINE void step_columns(const Step& step, std::int64_t column) {
    constexpr std::int64_t kWidth = sizeof(V) / sizeof(float);
    V d[kParts] = {};
    for (std::int64_t i = 0; i < step.dk; ++i) {
        const float* row = step.from + i * step.dv + column;
        const float weight = step.k[i];
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) {
            V m;
            load_vector(row + part * kWidth, m);
            d[part] += weight * m;
        }
    }
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
        V v;
        load_vector(step.v + column + part * kWidth, v);
        d[part] = step.beta * (v - step.alpha * d[part]);
    }
    V out[kParts] = {};
    for (std::int64_t i = 0; i < step.dk; ++i) {
        const std::int64_t at = i * step.dv + column;
        const float weight = step.k[i];
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) {
            V m;
            load_vector(step.from + at + part * kWidth, m);
            m = step.alpha * m + weight * d[part];
            store_vector(m, step.to + at + part * kWidth);
            if constexpr (kRead) out[part] += step.q[i] * m;
        }
    }
    if constexpr (kRead) {
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) {
            store_vector(out[part], step.out + column + part * kWidth);
        }
    }
}

template <typename V, bool kRead>
STRATA_INLINE void step_tile(const Step& step, std::int64_t columns) {
    constexpr std::int64_t kWidth = sizeof(V) / sizeof(float);
    constexpr int kParts = 4;
    std::int64_t column = 0;
    for (; column + kParts * kWidth <= columns; column += kParts * kWidth) {
        step_columns<V, kParts, kRead>(step, column);
    }
    for (; column + kWidth <= columns; column += kWidth) step_columns<V, 1, kRead>(step, column);
    for (; column < columns; ++column) {
        using One = float __attribute__((vector_size(4)));
        step_columns<One, 1, kRead>(step, column);
    }
}

// All rows on columns first .. first+columns-1 of one head.
struct RunTile {
    template <typename V>
    STRATA_INLINE static void run(const DeltaInputs* in, const DeltaHead* head, std::int64_t first,
                                  std::int64_t columns) {
        Step step{.dk = in->shape.key_dim, .dv = in->shape.value_dim};
        const std::int64_t key = key_head(in->shape, in->order, head->h) * step.dk;
        const std::int64_t at = head->h * step.dv + first;
        const std::int64_t keys = std::int64_t{in->shape.key_heads} * step.dk;
        step.from = head->from + first;
        step.to = head->to + first;
        for (std::int64_t t = 0; t < head->rows; ++t) {
            step.k = in->units.row(t) + keys + key;
            step.v = in->convolved.row(t) + 2 * keys + at;
            step.alpha = in->decay.row(t)[head->h];
            step.beta = in->beta.row(t)[head->h];
            if (head->out.empty()) {
                step_tile<V, false>(step, columns);
            } else {
                step.q = in->units.row(t) + key;
                step.out = head->out.row(t) + at;
                step_tile<V, true>(step, columns);
            }
            step.from = step.to;
        }
    }
};

}  // namespace

int key_head(const op::DeltaShape& shape, op::HeadOrder order, int h) {
    if (order == op::HeadOrder::tiled) return h % shape.key_heads;
    return h / (shape.value_heads / shape.key_heads);
}

void make_units(const DeltaInputs& in, std::int64_t t, float* units) {
    const std::int64_t dk = in.shape.key_dim;
    const float query_scale = 1.0f / std::sqrt(static_cast<float>(dk));
    for (std::int64_t g = 0; g < 2 * in.shape.key_heads; ++g) {
        const float scale = g < in.shape.key_heads ? query_scale : 1.0f;
        unit(in.convolved.row(t) + g * dk, dk, scale, units + g * dk);
    }
}

const float* value_head(const DeltaInputs& in, std::int64_t t, int h) {
    const std::int64_t keys = std::int64_t{2} * in.shape.key_heads * in.shape.key_dim;
    return in.convolved.row(t) + keys + std::int64_t{h} * in.shape.value_dim;
}

void run_recurrent(Instructions instructions, const DeltaInputs& in, const DeltaHead& head) {
    const std::int64_t dv = in.shape.value_dim;
    for (std::int64_t first = 0; first < dv; first += kTile) {
        run_kernel<RunTile>(instructions, &in, &head, first, std::min(kTile, dv - first));
    }
}

}  // namespace strata::cpu
