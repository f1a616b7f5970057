// op/sparse_attention.h on every backend in the build, against a float64 oracle.

#include "op/sparse_attention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/op/run/attention_check.h"
#include "tests/support/everywhere.h"

namespace strata::test {
namespace {

constexpr op::AttentionShape kShape{.heads = 6,
                                    .kv_heads = 2,
                                    .head_dim = 16,
                                    .index_heads = 2,
                                    .index_dim = 8,
                                    .ratio = 4,
                                    .blocks_kept = 3,
                                    .rotary_pairs = 3};
constexpr std::int64_t kWidth = 32;

std::string name(op::CacheType type, std::int64_t rows) {
    return name_of(type) + " T=" + std::to_string(rows);
}

void expect_oracle(const std::string& label, const AttentionLayer& layer, op::CacheType type,
                   const std::vector<float>& x, const std::vector<std::int64_t>& sizes) {
    const AttentionExpected want = attention_expected(layer, rows_of(x, layer.width()));
    on_backends(
        label, [&](TestBackend& b) { return run_sequence(b, label, layer, type, x, sizes); },
        [&](const AttentionSequence& got) { expect_sequence(label, layer, want, got); });
}

TEST(SparseAttention, matches_the_oracle_for_every_number_of_rows) {
    Random random("attention rows");
    const auto layer = random_attention(random, Types::mixed(), kShape, kWidth);
    for (const op::CacheType type : kCacheTypes) {
        for (const std::int64_t rows : kRowCounts) {
            expect_oracle(name(type, rows), layer, type, random.floats(rows * kWidth, -2, 2),
                          {rows});
        }
    }
}

TEST(SparseAttention, matches_the_oracle_in_every_weight_type) {
    for (const quant::Type weights : kWeightTypes) {
        Random random("attention types", static_cast<std::uint64_t>(weights));
        const auto layer = random_attention(random, Types(weights), kShape, 96);
        expect_oracle(std::string(quant::info(weights).name), layer, op::CacheType::f16,
                      random.floats(21 * 96, -2, 2), {1, 20});
    }
}

TEST(SparseAttention, matches_the_oracle_in_odd_shapes) {
    const op::AttentionShape shapes[] = {
        {1, 1, 2, 1, 2, 1, 1, 1},    // every row is a block, there is no tail
        {3, 3, 5, 1, 3, 2, 2, 1},    // one head a group, odd dimensions
        {6, 2, 7, 3, 6, 3, 2, 3},    // a ratio of 3; all of the index turns
        {10, 2, 12, 5, 9, 4, 1, 4},  // group of 5, one block kept
        {4, 1, 8, 2, 4, 5, 2, 0},    // nothing turns
    };
    Random random("attention shapes");
    for (const op::AttentionShape& shape : shapes) {
        const auto layer = random_attention(random, Types(quant::Type::f32), shape, 19);
        for (const op::CacheType type : kCacheTypes) {
            expect_oracle(
                "H=" + std::to_string(shape.heads) + " ratio=" + std::to_string(shape.ratio), layer,
                type, random.floats(40 * 19, -2, 2), {1, 2, 3, 30});
        }
    }
}

// NUM-03, on every set of instructions that the machine has and on CUDA.
TEST(SparseAttention, matches_the_oracle_for_every_head_dimension_in_use) {
    for (const int dim : {64, 80, 96, 128, 192, 256, 576}) {
        Random random("attention dimensions", static_cast<std::uint64_t>(dim));
        op::AttentionShape shape = kShape;
        shape.heads = 3;
        shape.kv_heads = 1;
        shape.head_dim = dim;
        shape.rotary_pairs = dim / 8;
        shape.index_dim = dim / 2;
        const auto layer = random_attention(random, Types(quant::Type::f32), shape, kWidth);
        for (const op::CacheType type : kCacheTypes) {
            // Rows that end within a block of the index, after a window, a chunk and one more.
            expect_oracle("d=" + std::to_string(dim) + " " + name(type, 23), layer, type,
                          random.floats(23 * kWidth, -2, 2), {6, 16, 1});
        }
    }
}

TEST(SparseAttention, any_split_of_the_rows_gives_the_same_bits) {
    Random random("attention splits");
    const auto layer = random_attention(random, Types::mixed(), kShape, kWidth);
    for (const op::CacheType type : kCacheTypes) {
        for (const std::int64_t rows : {2, 3, 5, 17, 66}) {
            const auto x = random.floats(rows * kWidth, -2, 2);
            for (TestBackend& backend : backends()) {
                const auto together = run_sequence(backend, "together", layer, type, x, {rows});
                for (const auto& sizes :
                     std::vector<std::vector<std::int64_t>>{{1}, {2, 1, 5}, {3}, {rows - 1, 1}}) {
                    const std::string label =
                        backend.name + ", " + name(type, rows) + " by " + std::to_string(sizes[0]);
                    expect_same_output(
                        label, run_sequence(backend, "in parts", layer, type, x, sizes), together);
                }
            }
        }
    }
}

TEST(SparseAttention, wide_rows_are_the_same_on_any_number_of_threads) {
    // So wide that a single row is work for several threads.
    const op::AttentionShape shape{12, 2, 32, 4, 32, 4, 6, 8};
    Random random("attention wide");
    const auto layer = random_attention(random, Types::mixed(), shape, 256);
    const auto x = random.floats(60 * 256, -2, 2);
    expect_oracle("wide", layer, op::CacheType::f16, x, {50, 1, 1, 3});
    for (TestBackend& backend : backends()) {
        expect_same_output(backend.name,
                           run_sequence(backend, "wide", layer, op::CacheType::f16, x, {1}),
                           run_sequence(backend, "wide", layer, op::CacheType::f16, x, {60}));
    }
}

TEST(SparseAttention, matches_the_oracle_in_the_shape_of_published_models) {
    // Of heads and index; one key head of two.
    const op::AttentionShape shape{12, 1, 256, 4, 128, 4, 8, 32};
    Random random("attention published");
    const auto layer = random_attention(random, Types(quant::Type::bf16), shape, 16);
    for (const op::CacheType type : kCacheTypes) {
        const auto x = random.floats(41 * 16, -2, 2);
        expect_oracle("published", layer, type, x, {39, 2});
    }
}

TEST(SparseAttention, rows_that_were_dropped_leave_no_trace) {
    Random random("attention dropped rows");
    const auto layer = random_attention(random, Types::mixed(), kShape, kWidth);
    const auto x = random.floats(24 * kWidth, -2, 2);
    const auto other = random.floats(9 * kWidth, -2, 2);
    for (TestBackend& backend : backends()) {
        const auto plain = run_sequence(backend, "plain", layer, op::CacheType::f16, x, {13, 11});
        auto state = empty_attention_state(layer, op::CacheType::f16, 29);
        run_attention(backend, "before", layer, state, slice(x, 0, 13, kWidth));
        const std::vector<float> raw = state.raw;
        run_attention(backend, "dropped", layer, state, other);
        state.rows = 13;
        state.raw = raw;
        const auto got = run_attention(backend, "after", layer, state, slice(x, 13, 11, kWidth));
        expect_same_bits(backend.name, got.y, slice(plain.y, 13, 11, kWidth));
    }
}

TEST(SparseAttention, raw_trace_may_be_left_out) {
    Random random("attention no trace");
    const auto layer = random_attention(random, Types::mixed(), kShape, kWidth);
    const auto x = random.floats(9 * kWidth, -2, 2);
    for (TestBackend& backend : backends()) {
        auto state = empty_attention_state(layer, op::CacheType::f16, 16);
        auto same = state;
        const auto with = run_attention(backend, "with", layer, state, x);
        const auto without = run_attention(backend, "without", layer, same, x, {.trace = false});
        expect_same_bits(backend.name + ", y", without.y, with.y);
        expect_same_bits(backend.name + ", block keys", same.block_keys, state.block_keys);
    }
}

TEST(SparseAttention, without_y_the_caches_are_the_same) {
    Random random("attention no y");
    const auto layer = random_attention(random, Types::mixed(), kShape, kWidth);
    const auto x = random.floats(21 * kWidth, -2, 2);
    for (TestBackend& backend : backends()) {
        auto state = empty_attention_state(layer, op::CacheType::f16, 24);
        auto same = state;
        for (const std::int64_t first : {0, 10}) {
            const auto some = slice(x, first, 10 + first / 10, kWidth);
            const auto with = run_attention(backend, "with", layer, state, some);
            const auto without = run_attention(backend, "without", layer, same, some, {.y = false});
            expect_same_bits(backend.name + ", raw rows", without.raw_trace, with.raw_trace);
        }
        EXPECT_TRUE(same.keys == state.keys) << backend.name;
        EXPECT_TRUE(same.values == state.values) << backend.name;
        expect_same_bits(backend.name + ", block keys", same.block_keys, state.block_keys);
        expect_same_bits(backend.name + ", history", same.raw, state.raw);
    }
}

TEST(SparseAttention, the_context_may_be_filled_to_its_last_row) {
    Random random("attention full context");
    const auto layer = random_attention(random, Types::mixed(), kShape, kWidth);
    const auto x = random.floats(18 * kWidth, -2, 2);
    for (TestBackend& backend : backends()) {
        auto state = empty_attention_state(layer, op::CacheType::f16, 18);
        const auto got = run_attention(backend, "full", layer, state, x);
        const auto roomy = run_sequence(backend, "roomy", layer, op::CacheType::f16, x, {18});
        expect_same_bits(backend.name, got.y, roomy.y);
    }
}

TEST(SparseAttention, is_dense_up_to_the_budget_and_a_tail_and_sparse_after) {
    Random random("attention budget");
    const auto layer = random_attention(random, Types(quant::Type::f32), kShape, kWidth);
    ASSERT_EQ(layer.dense_rows(), 15);
    const std::int64_t dense = layer.dense_rows();
    const auto x = random.floats(40 * kWidth, -2, 2);
    const AttentionExpected want = attention_expected(layer, rows_of(x, kWidth));
    for (TestBackend& backend : backends()) {
        const auto got =
            run_sequence(backend, "budget", layer, op::CacheType::f32, x, {dense + 1, 7});
        const Rows keys = cached_rows(layer, got.state, got.state.keys);
        const Rows values = cached_rows(layer, got.state, got.state.values);
        Rows plain;
        std::vector<std::int64_t> visible;
        for (std::int64_t p = 0; p < 40; ++p) {
            visible.push_back(p);
            plain.push_back(attention_read(layer, want.rows[p], keys, values, visible));
        }
        expect_close(backend.name + ", dense rows", slice(got.y, 0, dense, kWidth),
                     Rows(plain.begin(), plain.begin() + dense), Tolerance::attention());
        for (std::int64_t p = dense; p < 40; ++p) {
            expect_far(backend.name + ", row " + std::to_string(p), slice(got.y, p, 1, kWidth),
                       {plain[p]}, Tolerance::attention());
        }
    }
}

// Every row of the sequence must be what the oracle reads from `selected(position)`.
template <typename Selected>
void expect_selected(const std::string& label, const AttentionLayer& layer,
                     const std::vector<float>& x, Selected selected) {
    for (TestBackend& backend : backends()) {
        const auto got = run_sequence(backend, label, layer, op::CacheType::f32, x, {5, 1, 16});
        const Rows keys = cached_rows(layer, got.state, got.state.keys);
        const Rows values = cached_rows(layer, got.state, got.state.values);
        Rows want;
        for (const Row& row : rows_of(x, layer.width())) {
            const auto p = static_cast<std::int64_t>(want.size());
            want.push_back(
                attention_read(layer, attention_row(layer, row, p), keys, values, selected(p)));
        }
        expect_close(backend.name + ", " + label, got.y, want, Tolerance::attention());
    }
}

// The rows of the `kept` lowest complete blocks, and the tail.
std::vector<std::int64_t> lowest_blocks(const op::AttentionShape& shape, std::int64_t p) {
    const std::int64_t complete = (p + 1) / shape.ratio;
    const std::int64_t kept = std::min<std::int64_t>(shape.blocks_kept, complete);
    std::vector<std::int64_t> rows;
    for (std::int64_t t = 0; t <= p; ++t) {
        if (t < kept * shape.ratio || t >= complete * shape.ratio) rows.push_back(t);
    }
    return rows;
}

TEST(SparseAttention, scores_that_are_all_zero_go_to_the_lower_blocks) {
    Random random("attention zero scores");
    auto layer = random_attention(random, Types(quant::Type::f32), kShape, kWidth);
    const auto x = random.floats(40 * kWidth, -2, 2);
    const auto lowest = [&](std::int64_t p) { return lowest_blocks(kShape, p); };
    const TestWeight index_query = layer.index_query;
    layer.index_query = zero_weight(index_query.rows, kWidth);
    expect_selected("index queries are zero", layer, x, lowest);
    // Queries that point away from every block key: below zero in each head before the sum.
    layer.inverse_frequency.assign(kShape.rotary_pairs, 0.0);
    layer.index_query_norm.assign(kShape.index_dim, -1.0f);
    layer.index_key_norm.assign(kShape.index_dim, 1.0f);
    layer.index_key = make_weight(quant::Type::f32, kShape.index_dim, kWidth,
                                  std::vector<float>(kShape.index_dim * kWidth, 1.0f));
    layer.index_query = make_weight(quant::Type::f32, index_query.rows, kWidth,
                                    std::vector<float>(index_query.rows * kWidth, 1.0f));
    std::vector<float> positive = x;
    for (float& value : positive) value = std::abs(value) + 0.1f;
    expect_selected("scores are negative before the rectifier", layer, positive, lowest);
}

TEST(SparseAttention, equal_scores_above_zero_go_to_the_lower_blocks) {
    Random random("attention equal scores");
    auto layer = random_attention(random, Types(quant::Type::f32), kShape, kWidth);
    // The index sees the first 8 inputs only, which are the same in every row, and does not turn.
    constexpr std::int64_t kSeen = 8;
    layer.inverse_frequency.assign(kShape.rotary_pairs, 0.0);
    for (TestWeight* weight : {&layer.index_query, &layer.index_key}) {
        auto values = weight->values;
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (i % kWidth >= kSeen) values[i] = 0;
        }
        *weight = make_weight(quant::Type::f32, weight->rows, kWidth, values);
    }
    auto x = random.floats(40 * kWidth, -2, 2);
    for (std::size_t i = kWidth; i < x.size(); ++i) {
        if (i % kWidth < kSeen) x[i] = x[i % kWidth];
    }
    // One of the two heads may lie below zero; a query equal to the key does not.
    layer.index_query = make_weight(quant::Type::f32, 2 * kShape.index_dim, kWidth, [&] {
        auto values = layer.index_key.values;
        append(values, layer.index_key.values);
        return values;
    }());
    layer.index_query_norm = layer.index_key_norm;
    expect_selected("equal scores", layer, x,
                    [&](std::int64_t p) { return lowest_blocks(kShape, p); });
}

TEST(SparseAttention, a_block_that_the_current_row_completes_is_a_candidate_and_not_forced) {
    Random random("attention current block");
    const auto layer = random_attention(random, Types(quant::Type::f32), kShape, kWidth);
    const auto x = random.floats(120 * kWidth, -2, 2);
    const AttentionExpected want = attention_expected(layer, rows_of(x, kWidth));
    // Both cases are in the data, so that the oracle's rows below speak of both.
    int taken = 0;
    int left_out = 0;
    for (std::int64_t p = layer.dense_rows(); p < 120; ++p) {
        if (p % kShape.ratio != kShape.ratio - 1) continue;
        const bool current = want.selections[p].rows.back() == p;
        (current ? taken : left_out) += 1;
    }
    ASSERT_GT(taken, 0);
    ASSERT_GT(left_out, 0);
    for (TestBackend& backend : backends()) {
        expect_sequence(backend.name, layer, want,
                        run_sequence(backend, "current", layer, op::CacheType::f32, x, {1}));
    }
}

TEST(SparseAttention, tail_rows_are_always_attended_at_every_position_in_a_block) {
    Random random("attention tail");
    auto layer = random_attention(random, Types(quant::Type::f32), kShape, kWidth);
    // Only the gate of the index is silent: the lower blocks win, so that the tail is the only way
    // for a late row to be seen.
    layer.index_query = zero_weight(layer.index_query.rows, kWidth);
    const auto x = random.floats(36 * kWidth, -2, 2);
    for (TestBackend& backend : backends()) {
        const auto plain = run_sequence(backend, "plain", layer, op::CacheType::f32, x, {36});
        for (std::int64_t changed = 20; changed < 32; ++changed) {
            auto other = x;
            for (std::int64_t c = 0; c < kWidth; ++c) other[changed * kWidth + c] += 1;
            const auto got =
                run_sequence(backend, "changed", layer, op::CacheType::f32, other, {36});
            for (std::int64_t p = changed + 1; p < 36; ++p) {
                const auto a = slice(got.y, p, 1, kWidth);
                const auto b = slice(plain.y, p, 1, kWidth);
                const bool in_tail = changed >= (p + 1) / kShape.ratio * kShape.ratio;
                const std::string label = backend.name + ", row " + std::to_string(p) +
                                          " after a change of " + std::to_string(changed);
                if (in_tail) {
                    expect_far(label, a, rows_of(b, kWidth), Tolerance::attention());
                } else {
                    expect_same_bits(label, a, b);
                }
            }
        }
    }
}

TEST(SparseAttention, rotation_is_exact_at_the_far_end_of_a_long_context) {
    const op::AttentionShape shape{1, 1, 4, 1, 4, 4, 2, 2};
    Random random("attention far");
    auto layer = random_attention(random, Types(quant::Type::f32), shape, 8);
    layer.inverse_frequency = {1.0, 0.37};
    constexpr std::int64_t kFirst = 262136;
    const auto x = random.floats(8 * 8, -2, 2);
    for (TestBackend& backend : backends()) {
        auto state = empty_attention_state(layer, op::CacheType::f32, kFirst + 8);
        // Zero keys, values and block keys before: only the new rows' own rotation matters.
        std::fill(state.keys.begin(), state.keys.end(), std::byte{0});
        std::fill(state.values.begin(), state.values.end(), std::byte{0});
        std::fill(state.block_keys.begin(), state.block_keys.end(), 0.0f);
        std::fill(state.raw.begin(), state.raw.end(), 0.0f);
        state.rows = kFirst;
        const auto got = run_attention(backend, "far", layer, state, x);
        const Rows keys = cached_rows(layer, state, state.keys);
        std::vector<float> stored;
        Rows want;
        for (std::int64_t t = 0; t < 8; ++t) {
            want.push_back(attention_row(layer, rows_of(x, 8)[t], kFirst + t).key);
            append(stored, flat({keys[kFirst + t]}));
        }
        expect_close(backend.name + ", keys", stored, want, Tolerance::attention());
        for (std::int64_t b = 0; b < 2; ++b) {
            expect_close(backend.name + ", block key",
                         slice(state.block_keys, kFirst / 4 + b, 1, 4),
                         {attention_block_key(layer, rows_of(slice(got.raw_trace, 4 * b, 4, 4), 4),
                                              kFirst / 4 + b)},
                         Tolerance::attention());
        }
    }
}

TEST(SparseAttention, the_last_rows_of_a_long_context_read_the_blocks_that_they_select) {
    const op::AttentionShape shape{2, 1, 8, 1, 4, 4, 3, 2};
    Random random("attention long");
    const auto layer = random_attention(random, Types(quant::Type::f32), shape, 8);
    constexpr std::int64_t kContext = 262144;
    const op::CacheRow row = row_of(layer, op::CacheType::q8_0);
    auto before = empty_attention_state(layer, row.type, kContext);
    before.rows = kContext - 2;
    for (std::int64_t p = 0; p < before.rows; ++p) {
        for (std::vector<std::byte>* cache : {&before.keys, &before.values}) {
            const auto bytes = cache_row_oracle(row, random.floats(8, -2, 2));
            std::copy(bytes.begin(), bytes.end(), cache->begin() + p * row.bytes());
        }
    }
    before.block_keys = random.floats(static_cast<std::int64_t>(before.block_keys.size()), -2, 2);
    before.raw = random.floats(static_cast<std::int64_t>(before.raw.size()), -2, 2);
    const auto x = random.floats(2 * 8, -2, 2);
    for (TestBackend& backend : backends()) {
        auto state = before;
        const auto got = run_attention(backend, "long", layer, state, x);
        const Rows keys = cached_rows(layer, state, state.keys);
        const Rows values = cached_rows(layer, state, state.values);
        Rows want;
        for (std::int64_t t = 0; t < 2; ++t) {
            const std::int64_t p = kContext - 2 + t;
            const AttentionRow one = attention_row(layer, rows_of(x, 8)[t], p);
            const Selection selected =
                attention_selection(layer, one.index_query, rows_of(state.block_keys, 4), p);
            ASSERT_GT(selected.margin, kRankingMargin) << "a near tie says nothing";
            want.push_back(attention_read(layer, one, keys, values, selected.rows));
        }
        expect_close(backend.name + ", y", got.y, want, Tolerance::attention());
    }
}

}  // namespace
}  // namespace strata::test
