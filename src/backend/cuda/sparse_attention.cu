// Bounded by reading the weights at few rows; the selection and the attention, in their own files,
// overtake at long contexts.
#include <algorithm>

#include "backend/cuda/cache.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/project.h"
#include "backend/cuda/sparse.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr int kUnits = 4;  // a block: one a warp

// The row of the last `ratio` raw rows up to row t: of this call or of the history.
__device__ const float* raw_row(const SparseRows& rows, std::int64_t t) {
    const std::int64_t di = rows.args.shape.index_dim;
    return t >= 0 ? rows.raw.row(t) : rows.args.raw_from + (rows.args.shape.ratio - 1 + t) * di;
}

// Whether row t completes a block.
__device__ bool completes(const SparseRows& rows, std::int64_t t) {
    return (first_of(rows.args) + t + 1) % rows.args.shape.ratio == 0;
}

// The key of the block that row t completes, by a warp.
__device__ void finish_block(const SparseRows& rows, std::int64_t t, float* held) {
    const op::SparseAttention& args = rows.args;
    const op::AttentionShape& shape = args.shape;
    const std::int64_t start = first_of(args) + t + 1 - shape.ratio;
    float* key = args.cache.block_keys + start / shape.ratio * shape.index_dim;
    for (int i = static_cast<int>(threadIdx.x) % kWarp; i < shape.index_dim; i += kWarp) {
        float sum = 0.0f;
        for (int r = 0; r < shape.ratio; ++r) sum += raw_row(rows, t + 1 - shape.ratio + r)[i];
        key[i] = sum / static_cast<float>(shape.ratio);
    }
    norm_and_turn(key, shape.index_dim, args.index_key_norm, args.epsilon,
                  {args.inverse_frequency, shape.rotary_pairs, start}, held,
                  [&](int i, float value) { key[i] = value; });
}

// The history after the call, by a warp; a column is one lane's, as it is in finish_block.
__device__ void keep_raw(const SparseRows& rows) {
    const op::AttentionShape& shape = rows.args.shape;
    const int kept = shape.ratio - 1;
    for (int i = static_cast<int>(threadIdx.x) % kWarp; i < shape.index_dim; i += kWarp) {
        for (int r = 0; r < kept; ++r) {
            rows.args.raw_to[r * shape.index_dim + i] = raw_row(rows, rows.raw.rows + r - kept)[i];
        }
    }
}

// Of the rows that could read the history, the one that does writes it after that; where none does,
// the first.
__device__ bool keeps_raw(const SparseRows& rows, std::int64_t t) {
    const int ratio = rows.args.shape.ratio;
    const std::int64_t last = ratio - 1 - first_of(rows.args) % ratio;  // completes a block
    return t == (last < rows.raw.rows && last < ratio - 1 ? last : 0);
}

// One unit of one row, a warp each: the block key and history, then key heads, value heads and,
// where y is wanted, query heads and index query heads.
__global__ void __launch_bounds__(kUnits* kWarp) finish_units(SparseRows rows) {
    follow_earlier_kernels();
    const op::SparseAttention& args = rows.args;
    const op::AttentionShape& shape = args.shape;
    const int d = shape.head_dim;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const std::int64_t t = blockIdx.y;
    float* held = reinterpret_cast<float*>(shared_bytes()) + warp * max(d, shape.index_dim);
    const Turns turns{args.inverse_frequency, shape.rotary_pairs, first_of(args) + t};
    int unit = static_cast<int>(blockIdx.x) * kUnits + warp - 1;
    if (unit < 0) {
        if (completes(rows, t)) finish_block(rows, t, held);
        if (keeps_raw(rows, t)) keep_raw(rows);
        return;
    }
    const op::CacheRow cached{args.cache.type, shape.kv_heads, d};
    if (unit < shape.kv_heads) {
        norm_and_turn(rows.key.row(t) + std::int64_t{unit} * d, d, args.key_norm, args.epsilon,
                      turns, held, [&](int i, float value) { held[i] = value; });
        store_head(cached, held, args.cache.keys, turns.position, unit);
        return;
    }
    unit -= shape.kv_heads;
    if (unit < shape.kv_heads) {
        store_head(cached, rows.value.row(t) + std::int64_t{unit} * d, args.cache.values,
                   turns.position, unit);
        return;
    }
    unit -= shape.kv_heads;
    if (args.y.empty() || unit >= shape.heads + shape.index_heads) return;
    const bool indexes = unit >= shape.heads;
    float* head = indexes ? rows.index_query.row(t) + (unit - shape.heads) * shape.index_dim
                          : rows.query.row(t) + std::int64_t{unit} * 2 * d;
    norm_and_turn(head, indexes ? shape.index_dim : d,
                  indexes ? args.index_query_norm : args.query_norm, args.epsilon, turns, held,
                  [&](int i, float value) { head[i] = value; });
}

void check(const op::SparseAttention& args) {
    const op::AttentionShape& shape = args.shape;
    const std::int64_t width = args.x.cols;
    const std::int64_t rows = args.x.rows;
    const std::int64_t d = shape.head_dim;
    STRATA_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 && shape.ratio > 0);
    STRATA_CHECK(shape.blocks_kept > 0 && 2 * shape.rotary_pairs <= d);
    STRATA_CHECK(2 * shape.rotary_pairs <= shape.index_dim);
    STRATA_CHECK(args.query.rows == shape.heads * 2 * d && args.out.cols == shape.heads * d);
    STRATA_CHECK(args.key.rows == shape.kv_heads * d && args.value.rows == shape.kv_heads * d);
    STRATA_CHECK(args.index_query.rows == std::int64_t{shape.index_heads} * shape.index_dim);
    STRATA_CHECK(args.index_key.rows == shape.index_dim);
    STRATA_CHECK(args.cache.context <= op::kContextMax);
    STRATA_CHECK(args.first >= 0 && args.first + rows <= args.cache.context);
    STRATA_CHECK(args.y.empty() || (args.y.rows == rows && args.y.cols == width));
    STRATA_CHECK(args.raw_trace.empty() ||
                 (args.raw_trace.rows == rows && args.raw_trace.cols == shape.index_dim));
}

SparseRows project_rows(Queue& queue, const op::SparseAttention& args) {
    const std::int64_t count = args.x.rows;
    SparseRows rows;
    rows.args = args;
    rows.key = queue.matrix(count, args.key.rows);
    rows.value = queue.matrix(count, args.value.rows);
    rows.raw = args.raw_trace.empty() ? queue.matrix(count, args.index_key.rows) : args.raw_trace;
    if (!args.y.empty()) {
        rows.query = queue.matrix(count, args.query.rows);
        rows.index_query = queue.matrix(count, args.index_query.rows);
        rows.attended = queue.matrix(count, args.out.cols);
        rows.chosen = queue.take<std::int32_t>(count * args.shape.blocks_kept);
        rows.scores = queue.take<float>(select_scratch(args));
        rows.partial = queue.take<float>(attend_scratch(args));
    }
    const Product products[] = {{args.key, rows.key},
                                {args.value, rows.value},
                                {args.index_key, rows.raw},
                                {args.query, rows.query},
                                {args.index_query, rows.index_query}};
    project(queue, args.x, {products, args.y.empty() ? 3u : 5u});
    return rows;
}

}  // namespace

void finish_rows(Queue& queue, const SparseRows& rows) {
    const op::AttentionShape& shape = rows.args.shape;
    const int heads = rows.args.y.empty() ? 0 : shape.heads + shape.index_heads;
    const int units = 1 + 2 * shape.kv_heads + heads;
    launch_dependent(queue,
                     {dim3(static_cast<unsigned>((units + kUnits - 1) / kUnits),
                           static_cast<unsigned>(rows.raw.rows)),
                      kUnits * kWarp,
                      static_cast<std::size_t>(kUnits * std::max(shape.head_dim, shape.index_dim)) *
                          sizeof(float)},
                     finish_units, rows);
}

void sparse_attention(const op::SparseAttention& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const std::int64_t count = args.x.rows;
    if (count == 0) return;
    const SparseRows rows = project_rows(own, args);
    finish_rows(own, rows);
    if (args.y.empty()) return;
    for (std::int64_t first = 0; first < count; first += kSparseRows) {
        const std::int64_t some = std::min(kSparseRows, count - first);
        select_blocks(own, rows, first, some);
        attend(own, rows, first, some);
    }
    project(own, rows.attended, args.out, args.y);
}

}  // namespace strata::cuda
