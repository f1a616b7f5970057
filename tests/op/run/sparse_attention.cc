#include "tests/op/run/sparse_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "quant/half.h"

namespace strata::test {
namespace {

std::size_t entry_bytes(op::CacheType type) { return type == op::CacheType::f16 ? 2 : 4; }

template <typename T>
void poison_from(std::vector<T>& values, std::int64_t first) {
    std::fill(values.begin() + first, values.end(), poison<T>());
}

// That `after` is `before` outside [first, last) and holds no poisoned value of `size` bytes
// inside.
template <typename T>
void expect_written(const std::string& what, const std::vector<T>& before,
                    const std::vector<T>& after, std::int64_t first, std::int64_t last,
                    std::size_t size) {
    const auto* old = reinterpret_cast<const std::byte*>(before.data());
    const auto* now = reinterpret_cast<const std::byte*>(after.data());
    const std::size_t from = first * sizeof(T);
    const std::size_t to = last * sizeof(T);
    const std::size_t end = before.size() * sizeof(T);
    EXPECT_TRUE(std::equal(now, now + from, old)) << what << ": earlier entries changed";
    EXPECT_TRUE(std::equal(now + to, now + end, old + to)) << what << ": later entries changed";
    for (std::size_t at = from; at < to; at += size) {
        const bool poisoned =
            std::all_of(now + at, now + at + size, [](std::byte b) { return b == kPoison; });
        ASSERT_FALSE(poisoned) << what << ": value " << (at - from) / size
                               << " of the new rows was not written, or came from scratch";
    }
}

// Scratch as a call finds it: poison from the first row on, and raw rows before the start too.
void poison_scratch(const AttentionLayer& layer, AttentionState& state) {
    const op::AttentionShape& shape = layer.shape;
    const auto row_bytes = static_cast<std::int64_t>(entry_bytes(state.type)) * layer.kv_width();
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
    const std::size_t size = entry_bytes(state.type);
    const std::int64_t row_bytes = static_cast<std::int64_t>(size) * layer.kv_width();
    const auto take = [&](const char* name, auto& values, const auto* data, std::int64_t first,
                          std::int64_t last, std::size_t value_bytes) {
        auto after = rig.read(data);
        expect_written(rig.label() + ", " + name, values, after, first, last, value_bytes);
        values = std::move(after);
    };
    take("keys", state.keys, static_cast<const std::byte*>(args.cache.keys), state.rows * row_bytes,
         end * row_bytes, size);
    take("values", state.values, static_cast<const std::byte*>(args.cache.values),
         state.rows * row_bytes, end * row_bytes, size);
    take("block_keys", state.block_keys, static_cast<const float*>(args.cache.block_keys),
         state.rows / shape.ratio * shape.index_dim, end / shape.ratio * shape.index_dim,
         sizeof(float));
    state.raw = rig.read(static_cast<const float*>(args.raw_to));
    state.rows = end;
}

}  // namespace

AttentionState empty_attention_state(const AttentionLayer& layer, op::CacheType type,
                                     std::int64_t context) {
    const op::AttentionShape& shape = layer.shape;
    const std::size_t entries = context * layer.kv_width();
    AttentionState state;
    state.type = type;
    state.context = context;
    state.keys.assign(entries * entry_bytes(type), kPoison);
    state.values = state.keys;
    state.block_keys.assign(context / shape.ratio * shape.index_dim, poison<float>());
    state.raw.assign(std::int64_t{shape.ratio - 1} * shape.index_dim, poison<float>());
    return state;
}

Rows cached_rows(const AttentionLayer& layer, const AttentionState& state,
                 const std::vector<std::byte>& cache) {
    const std::size_t size = entry_bytes(state.type);
    std::vector<float> values(static_cast<std::size_t>(state.rows * layer.kv_width()));
    for (std::size_t i = 0; i < values.size(); ++i) {
        std::uint16_t half = 0;
        if (size == 4) {
            std::memcpy(&values[i], cache.data() + i * size, size);
        } else {
            std::memcpy(&half, cache.data() + i * size, size);
            values[i] = quant::f16_to_f32(half);
        }
    }
    return rows_of(values, layer.kv_width());
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
