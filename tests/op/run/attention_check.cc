#include "tests/op/run/attention_check.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace strata::test {

AttentionSequence run_sequence(TestBackend& backend, const std::string& label,
                               const AttentionLayer& layer, op::CacheType type,
                               const std::vector<float>& x,
                               const std::vector<std::int64_t>& sizes) {
    const std::int64_t total = static_cast<std::int64_t>(x.size()) / layer.width();
    AttentionSequence sequence;
    // A few rows more than are used, no multiple of the ratio.
    sequence.state = empty_attention_state(layer, type, total + layer.shape.ratio + 1);
    std::size_t next = 0;
    while (sequence.state.rows < total) {
        const std::int64_t first = sequence.state.rows;
        const std::int64_t n = std::min(sizes[std::min(next++, sizes.size() - 1)], total - first);
        const auto got =
            run_attention(backend, label + " at " + std::to_string(first), layer, sequence.state,
                          slice(x, first, n, layer.width()), {.in_place = next % 2 == 0});
        append(sequence.y, got.y);
        append(sequence.raw, got.raw_trace);
    }
    return sequence;
}

void expect_same_output(const std::string& what, const AttentionSequence& got,
                        const AttentionSequence& want) {
    expect_same_bits(what + ", y", got.y, want.y);
    expect_same_bits(what + ", raw rows", got.raw, want.raw);
    EXPECT_TRUE(got.state.keys == want.state.keys) << what << ": keys differ in bits";
    EXPECT_TRUE(got.state.values == want.state.values) << what << ": values differ in bits";
    expect_same_bits(what + ", block keys", got.state.block_keys, want.state.block_keys);
    // Rows of the history from before the start hold whatever they held.
    const std::size_t held = std::min(got.state.raw.size(), got.raw.size());
    expect_same_bits(
        what + ", history",
        {got.state.raw.end() - static_cast<std::ptrdiff_t>(held), got.state.raw.end()},
        {want.state.raw.end() - static_cast<std::ptrdiff_t>(held), want.state.raw.end()});
}

AttentionExpected attention_expected(const AttentionLayer& layer, const Rows& x) {
    AttentionExpected expected;
    Rows raw;
    for (std::size_t p = 0; p < x.size(); ++p) {
        const auto position = static_cast<std::int64_t>(p);
        expected.rows.push_back(attention_row(layer, x[p], position));
        raw.push_back(expected.rows.back().raw);
        if (static_cast<int>(raw.size()) == layer.shape.ratio) {
            expected.block_keys.push_back(
                attention_block_key(layer, raw, position / layer.shape.ratio));
            raw.clear();
        }
        expected.selections.push_back(attention_selection(layer, expected.rows.back().index_query,
                                                          expected.block_keys, position));
    }
    return expected;
}

namespace {

void expect_state(const std::string& label, const AttentionLayer& layer,
                  const AttentionExpected& want, const AttentionSequence& got) {
    Rows keys;
    Rows values;
    Rows raw;
    for (const AttentionRow& row : want.rows) {
        keys.push_back(row.key);
        values.push_back(row.value);
        raw.push_back(row.raw);
    }
    const op::CacheRow row = row_of(layer, got.state.type);
    expect_cached(label + ", keys", row, flat(cached_rows(layer, got.state, got.state.keys)), keys);
    expect_cached(label + ", values", row, flat(cached_rows(layer, got.state, got.state.values)),
                  values);
    expect_close(label + ", raw rows", got.raw, raw, Tolerance::projection());
    const auto complete = static_cast<std::int64_t>(want.block_keys.size());
    expect_close(label + ", block keys",
                 slice(got.state.block_keys, 0, complete, layer.shape.index_dim), want.block_keys,
                 Tolerance::attention());
    const std::size_t held = std::min(got.state.raw.size(), got.raw.size());
    expect_same_bits(label + ", history",
                     {got.state.raw.end() - static_cast<std::ptrdiff_t>(held), got.state.raw.end()},
                     {got.raw.end() - static_cast<std::ptrdiff_t>(held), got.raw.end()});
}

}  // namespace

void expect_sequence(const std::string& label, const AttentionLayer& layer,
                     const AttentionExpected& want, const AttentionSequence& got,
                     Tolerance y_tolerance) {
    expect_state(label, layer, want, got);
    const Rows keys = cached_rows(layer, got.state, got.state.keys);
    const Rows values = cached_rows(layer, got.state, got.state.values);
    std::vector<float> clear;
    Rows y;
    for (std::size_t p = 0; p < want.rows.size(); ++p) {
        if (want.selections[p].margin < kRankingMargin) continue;
        append(clear, slice(got.y, static_cast<std::int64_t>(p), 1, layer.width()));
        y.push_back(attention_read(layer, want.rows[p], keys, values, want.selections[p].rows));
    }
    EXPECT_GE(y.size() * 20, want.rows.size() * 19) << label << ": too many near ties";
    expect_close(label + ", y", clear, y, y_tolerance);
}

}  // namespace strata::test
