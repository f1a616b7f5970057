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
    const float* next = nullptr;  // k of the row after
    const float* v = nullptr;
    float* out = nullptr;
    float alpha = 0;
    float beta = 0;
};

// dots = M^T k. Each column's sums run over i in order, whatever V, here and in the next.
template <typename V, int kParts>
STRATA_INLINE void multiply_columns(const Step& step, V (&dots)[kParts]) {
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) dots[part] = V{};
    for (std::int64_t i = 0; i < step.dk; ++i) {
        const float weight = step.k[i];
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) {
            V m;
            load_vector(step.from + i * step.dv + part * kVectorWidth<V>, m);
            dots[part] += weight * m;
        }
    }
}

// d = beta (v - alpha M^T k);  M <- alpha M + k d^T;  o = M^T q, for kParts vectors of columns,
// with M^T k in `dots`, which is left for the next row: the memory is passed once a row.
template <typename V, int kParts, bool kRead, bool kNext>
STRATA_INLINE void step_columns(const Step& step, V (&dots)[kParts]) {
    constexpr std::int64_t kWidth = kVectorWidth<V>;
    V d[kParts];
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
        V v;
        load_vector(step.v + part * kWidth, v);
        d[part] = step.beta * (v - step.alpha * dots[part]);
        dots[part] = V{};
    }
    V out[kParts] = {};
    for (std::int64_t i = 0; i < step.dk; ++i) {
        const std::int64_t at = i * step.dv;
        const float weight = step.k[i];
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) {
            V m;
            load_vector(step.from + at + part * kWidth, m);
            m = step.alpha * m + weight * d[part];
            store_vector(m, step.to + at + part * kWidth);
            if constexpr (kRead) out[part] += step.q[i] * m;
            if constexpr (kNext) dots[part] += step.next[i] * m;
        }
    }
    if constexpr (kRead) {
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) {
            store_vector(out[part], step.out + part * kWidth);
        }
    }
}

// All rows on the kParts vectors of columns of one head from `first` on.
template <typename V, int kParts, bool kRead>
STRATA_INLINE void run_columns(const DeltaInputs& in, const DeltaHead& head, std::int64_t first) {
    Step step{.dk = in.shape.key_dim, .dv = in.shape.value_dim};
    const std::int64_t key = key_head(in.shape, in.order, head.h) * step.dk;
    const std::int64_t at = head.h * step.dv + first;
    const std::int64_t keys = std::int64_t{in.shape.key_heads} * step.dk;
    step.from = head.from + first;
    step.to = head.to + first;
    step.k = in.units.row(0) + keys + key;
    V dots[kParts];
    multiply_columns<V, kParts>(step, dots);
    for (std::int64_t t = 0; t < head.rows; ++t) {
        step.k = in.units.row(t) + keys + key;
        step.v = in.convolved.row(t) + 2 * keys + at;
        step.alpha = in.decay.row(t)[head.h];
        step.beta = in.beta.row(t)[head.h];
        if constexpr (kRead) {
            step.q = in.units.row(t) + key;
            step.out = head.out.row(t) + at;
        }
        if (t + 1 < head.rows) {
            step.next = in.units.row(t + 1) + keys + key;
            step_columns<V, kParts, kRead, true>(step, dots);
        } else {
            step_columns<V, kParts, kRead, false>(step, dots);
        }
        step.from = step.to;
    }
}

// The columns of one head from `first` on.
struct RunTile {
    template <typename V>
    STRATA_INLINE static void run(const DeltaInputs* in, const DeltaHead* head, std::int64_t first,
                                  std::int64_t columns) {
        if (head->out.empty()) {
            run_tile<V, false>(*in, *head, first, columns);
        } else {
            run_tile<V, true>(*in, *head, first, columns);
        }
    }

  private:
    template <typename V, bool kRead>
    STRATA_INLINE static void run_tile(const DeltaInputs& in, const DeltaHead& head,
                                       std::int64_t first, std::int64_t columns) {
        constexpr std::int64_t kWidth = kVectorWidth<V>;
        constexpr int kParts = 4;
        using One = float __attribute__((vector_size(4)));
        std::int64_t column = 0;
        for (; column + kParts * kWidth <= columns; column += kParts * kWidth) {
            run_columns<V, kParts, kRead>(in, head, first + column);
        }
        for (; column + kWidth <= columns; column += kWidth) {
            run_columns<V, 1, kRead>(in, head, first + column);
        }
        for (; column < columns; ++column) run_columns<One, 1, kRead>(in, head, first + column);
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
