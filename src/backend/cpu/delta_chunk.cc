// Bounded by multiply-adds: the memory is read and written once a chunk, and the chunk's own
// products are on blocks that fit the second cache level.
//
// With G_i the sum of the log decays of rows 0 .. i of a chunk and M the memory before it:
//   A_ij = beta_i (k_i . k_j) exp(G_i - G_j) for j < i
//   (I + A) D = diag(beta) (V - diag(exp(G)) K M)              one triangular solve, forward
//   o_i = exp(G_i) M^T q_i + sum over j <= i of (q_i . k_j) exp(G_i - G_j) D_j
//   M <- exp(G_last) M + sum over j of exp(G_last - G_j) k_j D_j^T
// which is the form of model.md 2.5 with its two solves taken as one. The sums G never rise, so
// that no exponent is above 0; they are held as double, since the difference of two long sums
// matters.
#include <algorithm>
#include <cmath>

#include "backend/cpu/delta.h"
#include "backend/cpu/product.h"

namespace strata::cpu {
namespace {

// One head's view of a chunk's scratch memory.
struct Chunk {
    std::int64_t rows = 0;
    std::int64_t dk = 0;
    std::int64_t dv = 0;
    float* q = nullptr;        // [rows, dk]
    float* k = nullptr;        // [rows, dk]
    float* d = nullptr;        // [rows, dv]
    float* overlap = nullptr;  // [rows, rows]: k_i . k_j, then -A
    float* share = nullptr;    // [rows, rows]: q_i . k_j exp(G_i - G_j)
    float* weight = nullptr;   // [rows]
    double* sums = nullptr;    // [rows]: G

    Rows q_rows() const { return {.data = q, .stride = dk, .count = rows}; }
    Rows k_rows() const { return {.data = k, .stride = dk, .count = rows}; }
    Rows d_rows(std::int64_t n) const { return {.data = d, .stride = dv, .count = n}; }

    // exp(G_i - G_j), j <= i
    float decay(std::int64_t i, std::int64_t j) const {
        return std::exp(static_cast<float>(sums[i] - sums[j]));
    }
    // exp(G_i)
    float decay(std::int64_t i) const { return std::exp(static_cast<float>(sums[i])); }
};

Chunk lay_out(const op::DeltaShape& shape, std::int64_t rows, float* scratch) {
    constexpr std::int64_t kMost = op::kDeltaChunk;
    Chunk chunk{.rows = rows, .dk = shape.key_dim, .dv = shape.value_dim};
    chunk.sums = reinterpret_cast<double*>(scratch);
    chunk.q = scratch + kMost * std::int64_t{sizeof(double) / sizeof(float)};
    chunk.k = chunk.q + kMost * chunk.dk;
    chunk.d = chunk.k + kMost * chunk.dk;
    chunk.overlap = chunk.d + kMost * chunk.dv;
    chunk.share = chunk.overlap + kMost * kMost;
    chunk.weight = chunk.share + kMost * kMost;
    return chunk;
}

void load(const DeltaInputs& in, int h, std::int64_t first, const Chunk& chunk) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < chunk.rows; ++i) {
        const float* units = in.units.row(first + i) + key_head(in.shape, in.order, h) * chunk.dk;
        std::copy_n(units, chunk.dk, chunk.q + i * chunk.dk);
        std::copy_n(units + in.shape.key_heads * chunk.dk, chunk.dk, chunk.k + i * chunk.dk);
        sum += static_cast<double>(in.log_decay.row(first + i)[h]);
        chunk.sums[i] = sum;
    }
    products(chunk.k_rows(), chunk.k_rows(), chunk.dk, chunk.overlap, chunk.rows, 1);
    products(chunk.q_rows(), chunk.k_rows(), chunk.dk, chunk.share, chunk.rows, 1);
    for (std::int64_t i = 0; i < chunk.rows; ++i) {
        const float beta = in.beta.row(first + i)[h];
        for (std::int64_t j = 0; j <= i; ++j) {
            const float decay = chunk.decay(i, j);
            chunk.overlap[i * chunk.rows + j] *= -beta * decay;
            chunk.share[i * chunk.rows + j] *= decay;
        }
    }
}

// D, row by row: the right side, then the rows above it times -A.
void solve(const DeltaInputs& in, int h, std::int64_t first, const float* memory,
           const Chunk& chunk) {
    const Rows memory_rows{.data = memory, .stride = chunk.dv, .count = chunk.dk};
    for (std::int64_t i = 0; i < chunk.rows; ++i) {
        float* d = chunk.d + i * chunk.dv;
        std::fill_n(d, chunk.dv, 0.0f);
        add_rows(chunk.k + i * chunk.dk, memory_rows, chunk.dv, d);
        const float* v = value_head(in, first + i, h);
        const float beta = in.beta.row(first + i)[h];
        const float decay = chunk.decay(i);
        for (std::int64_t j = 0; j < chunk.dv; ++j) d[j] = beta * (v[j] - decay * d[j]);
        add_rows(chunk.overlap + i * chunk.rows, chunk.d_rows(i), chunk.dv, d);
    }
}

void read(const float* memory, const Chunk& chunk, MatrixView<float> out, std::int64_t column) {
    const Rows memory_rows{.data = memory, .stride = chunk.dv, .count = chunk.dk};
    for (std::int64_t i = 0; i < chunk.rows; ++i) {
        float* o = out.row(i) + column;
        std::fill_n(o, chunk.dv, 0.0f);
        add_rows(chunk.q + i * chunk.dk, memory_rows, chunk.dv, o);
        const float decay = chunk.decay(i);
        for (std::int64_t j = 0; j < chunk.dv; ++j) o[j] *= decay;
        add_rows(chunk.share + i * chunk.rows, chunk.d_rows(i + 1), chunk.dv, o);
    }
}

void write(float* memory, const Chunk& chunk) {
    const std::int64_t last = chunk.rows - 1;
    const float decay = chunk.decay(last);
    for (std::int64_t i = 0; i < chunk.rows; ++i) {
        const float weight = chunk.decay(last, i);
        for (std::int64_t c = 0; c < chunk.dk; ++c) chunk.k[i * chunk.dk + c] *= weight;
    }
    for (std::int64_t c = 0; c < chunk.dk; ++c) {
        float* row = memory + c * chunk.dv;
        for (std::int64_t j = 0; j < chunk.dv; ++j) row[j] *= decay;
        for (std::int64_t i = 0; i < chunk.rows; ++i) chunk.weight[i] = chunk.k[i * chunk.dk + c];
        add_rows(chunk.weight, chunk.d_rows(chunk.rows), chunk.dv, row);
    }
}

}  // namespace

std::int64_t chunked_scratch(const op::DeltaShape& shape) {
    constexpr std::int64_t kMost = op::kDeltaChunk;
    return kMost * (std::int64_t{sizeof(double) / sizeof(float)} + 2 * shape.key_dim +
                    shape.value_dim + 2 * kMost + 1);
}

void run_chunked(const DeltaInputs& in, const DeltaHead& head, float* scratch) {
    const std::int64_t size = std::int64_t{in.shape.key_dim} * in.shape.value_dim;
    if (head.from != head.to) std::copy_n(head.from, size, head.to);
    for (std::int64_t first = 0; first < head.rows; first += op::kDeltaChunk) {
        const std::int64_t count = std::min<std::int64_t>(op::kDeltaChunk, head.rows - first);
        const Chunk chunk = lay_out(in.shape, count, scratch);
        load(in, head.h, first, chunk);
        solve(in, head.h, first, head.to, chunk);
        read(head.to, chunk, head.out.rows_from(first, count), head.h * chunk.dv);
        write(head.to, chunk);
    }
}

}  // namespace strata::cpu
