#include "tests/op/run/sparse_attention.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace strata::test {
namespace {

template <typename T>
void poison_from(std::vector<T>& values, std::int64_t first) {
    std::fill(values.begin() + first, values.end(), poison<T>());
}

// That `after` is `before` outside [first, last).
template <typename T>
void expect_kept(const std::string& what, const std::vector<T>& before, const std::vector<T>& after,
                 std::int64_t first, std::int64_t last) {
    const auto* old = reinterpret_cast<const std::byte*>(before.data());
    const auto* now = reinterpret_cast<const std::byte*>(after.data());
    const std::size_t from = first * sizeof(T);
    const std::size_t to = last * sizeof(T);
    const std::size_t end = before.size() * sizeof(T);
    EXPECT_TRUE(std::equal(now, now + from, old)) << what << ": earlier entries changed";
    EXPECT_TRUE(std::equal(now + to, now + end, old + to)) << what << ": later entries changed";
}

// Scratch as a call finds it: poison from the first row on, and raw rows before the start too.
void poison_scratch(const AttentionLayer& layer, AttentionState& state) {
    const op::AttentionShape& shape = layer.shape;
    const std::int64_t row_bytes = row_of(layer, state.type).bytes();
    poison_from(state.keys, state.rows * row_bytes);
    poison_from(state.values, state.rows * row_bytes);
    poison_from(state.block_keys, state.rows / shape.ratio * shape.index_dim);
    const std::int64_t before = std::max<std::int64_t>(shape.ratio - 1 - state.rows, 0);
    std::fill_n(state.raw.begin(), before * shape.index_dim, poison<float>());
}

void set_weights(Rig& rig, const AttentionLayer& layer, op::SparseAttention& args) {
    args.query = rig.weight("query", layer.query);
    args.key = rig.weight("key", layer.key);
    args.value = rig.weight("value", layer.value);
    args.out = rig.weight("out", layer.out);
    args.index_query = rig.weight("index_query", layer.index_query);
    args.index_key = rig.weight("index_key", layer.index_key);
    args.query_norm = rig.input("query_norm", layer.query_norm);
    args.key_norm = rig.input("key_norm", layer.key_norm);
    args.index_query_norm = rig.input("index_query_norm", layer.index_query_norm);
    args.index_key_norm = rig.input("index_key_norm", layer.index_key_norm);
    args.inverse_frequency = rig.input("inverse_frequency", layer.inverse_frequency);
    args.shape = layer.shape;
    args.epsilon = layer.epsilon;
}

// Takes the state back from the device, checking what was written.
void advance(Rig& rig, const AttentionLayer& layer, const op::SparseAttention& args,
             AttentionState& state) {
    const op::AttentionShape& shape = layer.shape;
    const std::int64_t end = state.rows + args.x.rows;
    const op::CacheRow row = row_of(layer, state.type);
    const auto take_rows = [&](const char* name, std::vector<std::byte>& rows, const void* data) {
        auto after = rig.read(static_cast<const std::byte*>(data));
        expect_kept(rig.label() + ", " + name, rows, after, state.rows * row.bytes(),
                    end * row.bytes());
        rows = std::move(after);
        for (std::int64_t p = state.rows; p < end; ++p) {
            ASSERT_FALSE(holds_poison(row, rows.data() + p * row.bytes()))
                << rig.label() << ", " << name << ": a part of row " << p
                << " was not written, or came from scratch";
        }
    };
    take_rows("keys", state.keys, args.cache.keys);
    take_rows("values", state.values, args.cache.values);
    auto blocks = rig.read(static_cast<const float*>(args.cache.block_keys));
    const std::int64_t from = state.rows / shape.ratio * shape.index_dim;
    const std::int64_t to = end / shape.ratio * shape.index_dim;
    expect_kept(rig.label() + ", block keys", state.block_keys, blocks, from, to);
    EXPECT_TRUE(std::none_of(blocks.begin() + from, blocks.begin() + to, is_poison<float>))
        << rig.label() << ": a block key was not written, or came from scratch";
    state.block_keys = std::move(blocks);
    state.raw = rig.read(static_cast<const float*>(args.raw_to));
    state.rows = end;
}

}  // namespace

op::CacheRow row_of(const AttentionLayer& layer, op::CacheType type) {
    return {type, layer.shape.kv_heads, layer.shape.head_dim};
}

AttentionState empty_attention_state(const AttentionLayer& layer, op::CacheType type,
                                     std::int64_t context) {
    const op::AttentionShape& shape = layer.shape;
    AttentionState state;
    state.type = type;
    state.context = context;
    state.keys.assign(context * row_of(layer, type).bytes(), kPoison);
    state.values = state.keys;
    state.block_keys.assign(context / shape.ratio * shape.index_dim, poison<float>());
    state.raw.assign(std::int64_t{shape.ratio - 1} * shape.index_dim, poison<float>());
    return state;
}

Rows cached_rows(const AttentionLayer& layer, const AttentionState& state,
                 const std::vector<std::byte>& cache) {
    const op::CacheRow row = row_of(layer, state.type);
    Rows rows;
    for (std::int64_t p = 0; p < state.rows; ++p) {
        const auto values = cached_values(row, cache.data() + p * row.bytes());
        rows.emplace_back(values.begin(), values.end());
    }
    return rows;
}

AttentionOutput run_attention(TestBackend& backend, const std::string& label,
                              const AttentionLayer& layer, AttentionState& state,
                              const std::vector<float>& x, AttentionOptions options) {
    Rig rig(backend, "sparse_attention, " + label);
    poison_scratch(layer, state);
    op::SparseAttention args;
    set_weights(rig, layer, args);
    args.x = rig.input("x", x, layer.width());
    args.first = state.rows;
    args.cache = {.keys = rig.state("keys", state.keys),
                  .values = rig.state("values", state.values),
                  .type = state.type,
                  .block_keys = rig.state("block_keys", state.block_keys),
                  .context = state.context};
    if (options.in_place) {
        args.raw_to = rig.state("raw", state.raw);
        args.raw_from = args.raw_to;
    } else {
        args.raw_from = rig.input("raw_from", state.raw);
        args.raw_to = rig.state("raw_to", std::vector<float>(state.raw.size(), poison<float>()));
    }
    if (options.trace) {
        args.raw_trace = rig.output<float>("raw_trace", args.x.rows, layer.shape.index_dim);
    }
    if (options.y) args.y = rig.output<float>("y", args.x.rows, layer.width());
    rig.ops().sparse_attention(args, rig.queue());
    rig.finish();
    advance(rig, layer, args, state);
    AttentionOutput output;
    if (options.y) output.y = rig.read(args.y.data);
    if (options.trace) output.raw_trace = rig.read(args.raw_trace.data);
    return output;
}

}  // namespace strata::test
