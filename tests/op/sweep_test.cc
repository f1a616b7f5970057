// Random shapes of every op on every backend in the build, against the float64 oracles: more of
// them than a quick test can afford.

#include <gtest/gtest.h>

#include "tests/op/run/attention_check.h"
#include "tests/op/run/delta_net.h"
#include "tests/op/run/experts.h"
#include "tests/op/run/ngram.h"
#include "tests/op/run/streams.h"
#include "tests/support/everywhere.h"

namespace strata::test {
namespace {

constexpr int kShapes = 150;

// Formats without blocks take any width, the others a multiple of 32.
struct Widths {
    Types types = Types::mixed();
    bool blocks = true;

    std::int64_t pick(Random& random) const {
        return blocks ? 32 * random.integer(1, 5) : random.integer(1, 150);
    }
};

Widths random_widths(Random& random) {
    if (random.integer(0, 1) == 0) return {};
    return {Types(kWeightTypes[random.integer(0, 2)]), false};
}

int small(Random& random, int low, int high) { return static_cast<int>(random.integer(low, high)); }

std::int64_t row_count(Random& random) {
    return kRowCounts[random.integer(0, std::ssize(kRowCounts) - 1)];
}

TEST(Sweep, stream_read) {
    for (int n = 0; n < kShapes; ++n) {
        Random random("sweep stream_read", n);
        const Widths widths = random_widths(random);
        const auto layer = random_stream_read(random, widths.types, small(random, 1, 6),
                                              widths.pick(random), widths.pick(random));
        const std::int64_t rows = row_count(random);
        const std::int64_t channels = layer.streams * layer.width;
        const StreamReadInput input{random.floats(rows * channels, -3, 3),
                                    random.floats(rows * layer.width, -2, 2),
                                    random.floats(rows * layer.streams, 0, 2)};
        const auto want = stream_read_oracle(layer, rows_of(input.residual, channels),
                                             rows_of(input.block_out, layer.width),
                                             rows_of(input.block_inject, layer.streams));
        const std::string label = "shape " + std::to_string(n);
        on_backends(
            label, [&](TestBackend& b) { return run_stream_read(b, label, layer, input); },
            [&](const StreamReadOutput& got) {
                expect_close(label + ", x", got.x, want.x, Tolerance::projection());
                expect_close(label + ", inject", got.inject, want.inject, Tolerance::projection());
            });
    }
}

TEST(Sweep, ngram_mix) {
    for (int n = 0; n < kShapes; ++n) {
        Random random("sweep ngram_mix", n);
        const Widths widths = random_widths(random);
        const NgramMixSizes sizes{small(random, 1, 5), widths.pick(random), widths.pick(random),
                                  small(random, 1, 5), small(random, 1, 4)};
        const auto layer = random_ngram_mix(random, widths.types, sizes);
        const std::int64_t rows = row_count(random);
        const std::int64_t channels = layer.channels();
        NgramMixInput input;
        input.e = random.floats(rows * sizes.embedding, -2, 2);
        input.residual = random.floats(rows * channels, -2, 2);
        input.history = random.floats(layer.history_rows() * channels, -2, 2);
        const auto want = ngram_mix_oracle(layer, rows_of(input.e, sizes.embedding),
                                           rows_of(input.residual, channels),
                                           rows_of(input.history, channels), {}, {});
        const std::string label = "shape " + std::to_string(n);
        on_backends(
            label, [&](TestBackend& b) { return run_ngram_mix(b, label, layer, input); },
            [&](const NgramMixOutput& got) {
                expect_close(label + ", residual", got.residual, want.residual,
                             Tolerance::projection());
                expect_close(label + ", history", got.history, want.history,
                             Tolerance::projection());
            });
    }
}

TEST(Sweep, delta_net) {
    for (int n = 0; n < kShapes; ++n) {
        Random random("sweep delta_net", n);
        op::DeltaShape shape;
        shape.key_heads = small(random, 1, 4);
        shape.value_heads = shape.key_heads * small(random, 1, 4);
        shape.key_dim = small(random, 1, 40);
        shape.value_dim = 32 * small(random, 1, 2);
        shape.kernel = small(random, 1, 5);
        auto layer = random_delta_net(random, Types::mixed(), shape, 32 * random.integer(1, 3));
        layer.order = random.integer(0, 1) == 0 ? op::HeadOrder::grouped : op::HeadOrder::tiled;
        const auto from = random_delta_state(random, layer);
        const auto x = random.floats(row_count(random) * layer.width(), -2, 2);
        const auto want = delta_net_oracle(layer, rows_of(x, layer.width()), from);
        for (const auto form : {op::DeltaForm::recurrent, op::DeltaForm::chunked}) {
            const std::string label =
                "shape " + std::to_string(n) + ", form " + std::to_string(static_cast<int>(form));
            on_backends(
                label,
                [&](TestBackend& b) {
                    return run_delta_net(b, label, layer, from, x, {.form = form});
                },
                [&](const DeltaNetOutput& got) {
                    expect_close(label + ", y", got.y, want.y, Tolerance::recurrence());
                    expect_close(label + ", memory", got.state.memory, want.memory,
                                 Tolerance::recurrence());
                });
        }
    }
}

TEST(Sweep, sparse_attention) {
    for (int n = 0; n < kShapes; ++n) {
        Random random("sweep sparse_attention", n);
        op::AttentionShape shape;
        shape.kv_heads = small(random, 1, 3);
        shape.heads = shape.kv_heads * small(random, 1, 6);
        shape.head_dim = 32 * small(random, 1, 2);
        shape.index_heads = small(random, 1, 4);
        shape.index_dim = small(random, 2, 40);
        shape.ratio = small(random, 1, 6);
        shape.blocks_kept = small(random, 1, 12);
        shape.rotary_pairs = small(random, 0, shape.index_dim / 2);
        shape.rotary_pairs = std::min(shape.rotary_pairs, shape.head_dim / 2);
        const auto layer = random_attention(random, Types::mixed(), shape, 64);
        const auto x = random.floats(random.integer(1, 160) * 64, -2, 2);
        const std::vector<std::int64_t> sizes = {random.integer(1, 9), random.integer(1, 70)};
        const op::CacheType type = kCacheTypes[random.integer(0, 2)];
        const AttentionExpected want = attention_expected(layer, rows_of(x, 64));
        const std::string label = "shape " + std::to_string(n);
        on_backends(
            label, [&](TestBackend& b) { return run_sequence(b, label, layer, type, x, sizes); },
            [&](const AttentionSequence& got) { expect_sequence(label, layer, want, got); });
    }
}

TEST(Sweep, experts) {
    for (int n = 0; n < kShapes; ++n) {
        Random random("sweep experts", n);
        const Widths widths = random_widths(random);
        ExpertsSizes sizes;
        sizes.width = widths.pick(random);
        sizes.hidden = widths.pick(random);
        sizes.shared_hidden = widths.pick(random);
        sizes.experts = random.integer(1, 40);
        sizes.active =
            small(random, 1, static_cast<int>(std::min<std::int64_t>(sizes.experts, 12)));
        auto layer = random_experts(random, widths.types, sizes);
        layer.renormalize = random.integer(0, 3) != 0;
        const auto x = random.floats(random.integer(1, 20) * sizes.width, -2, 2);
        const auto want = experts_oracle(layer, rows_of(x, sizes.width));
        if (want.margin < kRankingMargin) continue;
        const std::string label = "shape " + std::to_string(n);
        on_backends(
            label, [&](TestBackend& b) { return run_experts(b, label, layer, x); },
            [&](const ExpertsOutput& got) {
                expect_equal(label + ", chosen", got.chosen, want.chosen);
                expect_close(label + ", y", got.y, want.y, Tolerance::projection());
            });
    }
}

}  // namespace
}  // namespace strata::test
