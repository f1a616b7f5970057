// Bounded by reading the weights at few rows; the selection and the attention, in their own files,
// overtake at long contexts.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/cache.h"
#include "backend/cpu/history.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/project.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/rope.h"
#include "backend/cpu/sparse.h"
#include "base/check.h"

namespace strata::cpu {
namespace {

void check(const op::SparseAttention& args) {
    const op::AttentionShape& shape = args.shape;
    const std::int64_t width = args.x.cols;
    const std::int64_t rows = args.x.rows;
    const std::int64_t d = shape.head_dim;
    STRATA_CHECK(args.first_at == nullptr);  // nothing is recorded here
    STRATA_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 && shape.ratio > 0);
    STRATA_CHECK(shape.blocks_kept > 0 && 2 * shape.rotary_pairs <= d);
    STRATA_CHECK(2 * shape.rotary_pairs <= shape.index_dim);
    STRATA_CHECK(has_shape(args.query, shape.heads * 2 * d, width));
    STRATA_CHECK(has_shape(args.key, shape.kv_heads * d, width));
    STRATA_CHECK(has_shape(args.value, shape.kv_heads * d, width));
    STRATA_CHECK(has_shape(args.out, width, shape.heads * d));
    STRATA_CHECK(
        has_shape(args.index_query, std::int64_t{shape.index_heads} * shape.index_dim, width));
    STRATA_CHECK(has_shape(args.index_key, shape.index_dim, width));
    STRATA_CHECK(args.cache.context <= std::numeric_limits<std::int32_t>::max());
    STRATA_CHECK(args.first >= 0 && args.first + rows <= args.cache.context);
    STRATA_CHECK(args.y.empty() || (args.y.rows == rows && args.y.cols == width));
    STRATA_CHECK(args.raw_trace.empty() ||
                 (args.raw_trace.rows == rows && args.raw_trace.cols == shape.index_dim));
}

void norm_and_turn(Instructions instructions, float* x, op::Gain gain, std::int64_t n,
                   const op::SparseAttention& args, const float* turns) {
    const std::int64_t pairs = args.shape.rotary_pairs;
    rms_norm(instructions, x, gain, n, args.epsilon, x);
    turn(x, turns, turns + pairs, pairs);
}

// Norms and turns the keys of row t, and puts keys and values into the cache.
void finish_keys(Instructions instructions, const op::SparseAttention& args, std::int64_t t,
                 float* key, const float* value, const float* turns) {
    const op::AttentionShape& shape = args.shape;
    const std::int64_t d = shape.head_dim;
    for (std::int64_t g = 0; g < shape.kv_heads; ++g) {
        norm_and_turn(instructions, key + g * d, args.key_norm, d, args, turns);
    }
    const op::CacheRow row{args.cache.type, shape.kv_heads, d};
    store_row(row, key, args.cache.keys, args.first + t);
    store_row(row, value, args.cache.values, args.first + t);
}

// Norms and turns the queries of row t.
void finish_queries(Instructions instructions, const op::SparseAttention& args, float* query,
                    float* index_query, const float* turns) {
    const op::AttentionShape& shape = args.shape;
    const std::int64_t d = shape.head_dim;
    const std::int64_t di = shape.index_dim;
    for (std::int64_t h = 0; h < shape.heads; ++h) {
        norm_and_turn(instructions, query + h * 2 * d, args.query_norm, d, args, turns);
    }
    for (std::int64_t j = 0; j < shape.index_heads; ++j) {
        norm_and_turn(instructions, index_query + j * di, args.index_query_norm, di, args, turns);
    }
}

// The key of block b, from raw rows of this call and of the history before it.
void finish_block(Instructions instructions, const op::SparseAttention& args,
                  MatrixView<const float> raw, std::int64_t b, float* turns) {
    const op::AttentionShape& shape = args.shape;
    const std::int64_t di = shape.index_dim;
    float* key = args.cache.block_keys + b * di;
    std::fill_n(key, di, 0.0f);
    for (std::int64_t r = 0; r < shape.ratio; ++r) {
        const std::int64_t t = b * shape.ratio + r - args.first;
        const float* row = t >= 0 ? raw.row(t) : args.raw_from + (shape.ratio - 1 + t) * di;
        for (std::int64_t i = 0; i < di; ++i) key[i] += row[i];
    }
    const auto count = static_cast<float>(shape.ratio);
    for (std::int64_t i = 0; i < di; ++i) key[i] /= count;
    set_turns(b * shape.ratio, args.inverse_frequency, shape.rotary_pairs, turns,
              turns + shape.rotary_pairs);
    norm_and_turn(instructions, key, args.index_key_norm, di, args, turns);
}

// Finishes the keys of all rows and of the blocks that they complete; raw_to follows.
void remember(const op::SparseAttention& args, Queue& queue, MatrixView<float> key,
              MatrixView<const float> value, MatrixView<const float> raw) {
    const op::AttentionShape& shape = args.shape;
    const std::int64_t pairs = shape.rotary_pairs;
    const std::int64_t rows = args.x.rows;
    const MatrixView<float> turns = queue.matrix(queue.threads(), 2 * pairs);
    queue.split(rows, 4 * key.cols, [&](std::int64_t begin, std::int64_t end, int thread) {
        float* own = turns.row(thread);
        for (std::int64_t t = begin; t < end; ++t) {
            set_turns(args.first + t, args.inverse_frequency, pairs, own, own + pairs);
            finish_keys(queue.instructions(), args, t, key.row(t), value.row(t), own);
        }
    });
    const std::int64_t open = args.first / shape.ratio;
    const std::int64_t finished = (args.first + rows) / shape.ratio - open;
    queue.split(finished, 8 * shape.index_dim,
                [&](std::int64_t begin, std::int64_t end, int thread) {
                    for (std::int64_t i = begin; i < end; ++i) {
                        finish_block(queue.instructions(), args, raw, open + i, turns.row(thread));
                    }
                });
    advance_history(args.raw_from, {args.raw_to, shape.ratio - 1, shape.index_dim}, raw, rows);
}

// The part of a call that only y needs.
void answer(const op::SparseAttention& args, Queue& queue) {
    const std::int64_t pairs = args.shape.rotary_pairs;
    const std::int64_t rows = args.x.rows;
    const SparseQueries queries{queue.matrix(rows, args.query.rows),
                                queue.matrix(rows, args.index_query.rows)};
    const MatrixView<float> turns = queue.matrix(queue.threads(), 2 * pairs);
    const MatrixView<float> attended = queue.matrix(rows, args.out.cols);
    project(queue, args.x, {{args.query, queries.query}, {args.index_query, queries.index_query}});
    queue.split(rows, 2 * args.query.rows, [&](std::int64_t begin, std::int64_t end, int thread) {
        float* own = turns.row(thread);
        for (std::int64_t t = begin; t < end; ++t) {
            set_turns(args.first + t, args.inverse_frequency, pairs, own, own + pairs);
            finish_queries(queue.instructions(), args, queries.query.row(t),
                           queries.index_query.row(t), own);
        }
    });
    attend(args, queue, queries, select_blocks(args, queue, queries), attended);
    project(queue, attended, {{args.out, args.y}});
}

}  // namespace

void sparse_attention(const op::SparseAttention& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const std::int64_t rows = args.x.rows;
    const MatrixView<float> key = own.matrix(rows, args.key.rows);
    const MatrixView<float> value = own.matrix(rows, args.value.rows);
    const MatrixView<float> raw =
        args.raw_trace.empty() ? own.matrix(rows, args.index_key.rows) : args.raw_trace;
    project(own, args.x, {{args.key, key}, {args.value, value}, {args.index_key, raw}});
    remember(args, own, key, value, raw);
    if (!args.y.empty()) answer(args, own);
}

}  // namespace strata::cpu
