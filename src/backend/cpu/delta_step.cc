// Bounded by the memory's traffic: each step reads and writes it twice, from the second cache
// level.
#include <algorithm>
#include <cmath>

#include "backend/cpu/delta.h"
#include "backend/cpu/product.h"

namespace strata::cpu {
namespace {

// A norm of zero must not divide: model.md 2.5.
constexpr float kNormFloor = 1e-6f;

void unit(const float* x, std::int64_t n, float scale, float* out) {
    const float inverse = scale / std::sqrt(dot(x, x, n) + kNormFloor);
    for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * inverse;
}

// M <- alpha M;  read = M^T k
void decay_and_read(float* __restrict memory, std::int64_t dk, std::int64_t dv, float alpha,
                    const float* k, float* __restrict read) {
    std::fill_n(read, dv, 0.0f);
    for (std::int64_t i = 0; i < dk; ++i) {
        float* __restrict row = memory + i * dv;
        const float weight = k[i];
        for (std::int64_t j = 0; j < dv; ++j) {
            row[j] *= alpha;
            read[j] += weight * row[j];
        }
    }
}

// M <- M + k d^T
void write(float* __restrict memory, std::int64_t dk, std::int64_t dv, const float* k,
           const float* __restrict d) {
    for (std::int64_t i = 0; i < dk; ++i) {
        float* __restrict row = memory + i * dv;
        const float weight = k[i];
        for (std::int64_t j = 0; j < dv; ++j) row[j] += weight * d[j];
    }
}

// M <- M + k d^T;  out = M^T q
void write_and_read(float* __restrict memory, std::int64_t dk, std::int64_t dv, const float* k,
                    const float* __restrict d, const float* q, float* __restrict out) {
    std::fill_n(out, dv, 0.0f);
    for (std::int64_t i = 0; i < dk; ++i) {
        float* __restrict row = memory + i * dv;
        const float weight = k[i];
        const float share = q[i];
        for (std::int64_t j = 0; j < dv; ++j) {
            row[j] += weight * d[j];
            out[j] += share * row[j];
        }
    }
}

}  // namespace

int key_head(const op::DeltaShape& shape, op::HeadOrder order, int h) {
    if (order == op::HeadOrder::tiled) return h % shape.key_heads;
    return h / (shape.value_heads / shape.key_heads);
}

void unit_heads(const DeltaInputs& in, std::int64_t t, int h, float* q, float* k) {
    const std::int64_t dk = in.shape.key_dim;
    const float* queries = in.convolved.row(t) + key_head(in.shape, in.order, h) * dk;
    if (q != nullptr) unit(queries, dk, 1.0f / std::sqrt(static_cast<float>(dk)), q);
    unit(queries + in.shape.key_heads * dk, dk, 1.0f, k);
}

const float* value_head(const DeltaInputs& in, std::int64_t t, int h) {
    const std::int64_t keys = std::int64_t{2} * in.shape.key_heads * in.shape.key_dim;
    return in.convolved.row(t) + keys + std::int64_t{h} * in.shape.value_dim;
}

std::int64_t recurrent_scratch(const op::DeltaShape& shape) {
    return std::int64_t{2} * shape.key_dim + shape.value_dim;
}

void run_recurrent(const DeltaInputs& in, int h, std::int64_t rows, float* memory,
                   MatrixView<float> out, float* scratch) {
    const std::int64_t dk = in.shape.key_dim;
    const std::int64_t dv = in.shape.value_dim;
    float* q = scratch;
    float* k = q + dk;
    float* d = k + dk;
    for (std::int64_t t = 0; t < rows; ++t) {
        unit_heads(in, t, h, out.empty() ? nullptr : q, k);
        decay_and_read(memory, dk, dv, in.decay.row(t)[h], k, d);
        const float* v = value_head(in, t, h);
        const float beta = in.beta.row(t)[h];
        for (std::int64_t j = 0; j < dv; ++j) d[j] = beta * (v[j] - d[j]);
        if (out.empty()) {
            write(memory, dk, dv, k, d);
        } else {
            write_and_read(memory, dk, dv, k, d, q, out.row(t) + h * dv);
        }
    }
}

}  // namespace strata::cpu
