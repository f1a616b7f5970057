// op/delta_net.h by the prompt route, on the backends that have one, against its float64 oracle:
// row after row with the same bits wherever the rows are cut, and in chunks with the same bits
// where they are cut between chunks.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/op/run/delta_net.h"
#include "tests/support/everywhere.h"

namespace strata::test {
namespace {

constexpr std::int64_t kInputWidth = 40;
constexpr DeltaOptions kChunked{.form = op::DeltaForm::chunked};

std::vector<float> random_rows(Random& random, std::int64_t rows) {
    return random.floats(rows * kInputWidth, -2, 2);
}

void expect_oracle(const std::string& label, const DeltaNetOutput& got, const DeltaNetLayer& layer,
                   const DeltaNetState& from, const std::vector<float>& x) {
    const DeltaNetResult want = delta_net_oracle(layer, rows_of(x, kInputWidth), from);
    expect_result(label, got, want, Tolerance::rounded_inputs(), !got.trace.projected.empty());
}

// The rows in calls of these many, all but the first in place; then the trace is left out.
DeltaNetOutput run_in_parts(TestBackend& backend, const DeltaNetLayer& layer,
                            const DeltaNetState& from, const std::vector<float>& x,
                            const std::vector<std::int64_t>& parts, DeltaOptions options) {
    DeltaNetOutput all;
    all.state = from;
    std::int64_t first = 0;
    for (const std::int64_t rows : parts) {
        const auto part = run_delta_net(backend, "part", layer, all.state,
                                        slice(x, first, rows, kInputWidth), options);
        append(all.y, part.y);
        all.state = part.state;
        first += rows;
        options.in_place = true;
    }
    return all;
}

op::DeltaShape shape_of(int key_dim, int value_dim) {
    return {
        .key_heads = 2, .value_heads = 4, .key_dim = key_dim, .value_dim = value_dim, .kernel = 4};
}

TEST(PromptDelta, rows_match_the_oracle_and_carry_their_state_wherever_they_are_cut) {
    on_prompt_backends([](TestBackend& backend) {
        for (const int key_dim : {32, 64, 128}) {
            Random random("prompt delta");
            const auto layer =
                random_delta_net(random, Types::mixed(), shape_of(key_dim, 32), kInputWidth);
            const auto from = random_delta_state(random, layer);
            const auto x = random_rows(random, 37);
            auto got = run_delta_net(backend, "rows", layer, from, x, {.trace = true});
            expect_oracle(backend.name, got, layer, from, x);
            got.trace = {};
            expect_same_output(backend.name, run_in_parts(backend, layer, from, x, {2, 16, 19}, {}),
                               got);
        }
    });
}

TEST(PromptDelta, chunks_match_the_oracle_on_both_sides_of_their_ends) {
    on_prompt_backends([](TestBackend& backend) {
        for (const std::int64_t rows : {1, 63, 64, 65, 127, 128, 129, 200}) {
            Random random("prompt delta chunks", static_cast<std::uint64_t>(rows));
            auto layer = random_delta_net(random, Types::mixed(), shape_of(32, 32), kInputWidth);
            layer.order = rows % 2 == 0 ? op::HeadOrder::grouped : op::HeadOrder::tiled;
            const auto from = random_delta_state(random, layer);
            const auto x = random_rows(random, rows);
            const DeltaOptions options{.form = op::DeltaForm::chunked, .trace = rows < 100};
            const std::string label = backend.name + ", T=" + std::to_string(rows);
            expect_oracle(label, run_delta_net(backend, label, layer, from, x, options), layer,
                          from, x);
        }
    });
}

TEST(PromptDelta, chunks_of_every_width_match_the_oracle) {
    struct Case {
        op::DeltaShape shape;
        op::HeadOrder order;
    };
    const Case cases[] = {
        {{.key_heads = 1, .value_heads = 3, .key_dim = 128, .value_dim = 128, .kernel = 4},
         op::HeadOrder::grouped},
        {{.key_heads = 3, .value_heads = 6, .key_dim = 64, .value_dim = 96, .kernel = 4},
         op::HeadOrder::tiled},
        {{.key_heads = 1, .value_heads = 1, .key_dim = 32, .value_dim = 64, .kernel = 4},
         op::HeadOrder::tiled}};
    on_prompt_backends([&](TestBackend& backend) {
        for (const Case& own : cases) {
            Random random("prompt delta widths", static_cast<std::uint64_t>(own.shape.key_dim));
            auto layer = random_delta_net(random, Types::mixed(), own.shape, kInputWidth);
            layer.order = own.order;
            const auto from = random_delta_state(random, layer);
            const auto x = random_rows(random, 81);
            const std::string label = backend.name + ", dk=" + std::to_string(own.shape.key_dim);
            expect_oracle(label, run_delta_net(backend, label, layer, from, x, kChunked), layer,
                          from, x);
        }
    });
}

TEST(PromptDelta, rows_that_are_cut_between_chunks_have_the_same_bits) {
    on_prompt_backends([](TestBackend& backend) {
        for (const int key_dim : {32, 64}) {
            Random random("prompt delta cuts");
            const auto layer =
                random_delta_net(random, Types::mixed(), shape_of(key_dim, 32), kInputWidth);
            const auto from = random_delta_state(random, layer);
            const auto x = random_rows(random, 200);
            const auto together = run_delta_net(backend, "together", layer, from, x, kChunked);
            expect_same_output(
                backend.name, run_in_parts(backend, layer, from, x, {128, 72}, kChunked), together);
            expect_same_output(backend.name,
                               run_in_parts(backend, layer, from, x, {64, 64, 64, 8}, kChunked),
                               together);
        }
    });
}

TEST(PromptDelta, chunks_hold_under_any_decay) {
    on_prompt_backends([](TestBackend& backend) {
        // Of each head; the last lets nothing go, then all.
        for (const auto& rates : {std::vector<float>{-1, -16, -200, -1e6f},
                                  std::vector<float>{-1e-6f, -1e-4f, 0, -1e38f}}) {
            Random random("prompt delta decay");
            auto layer = random_delta_net(random, Types::mixed(), shape_of(32, 32), kInputWidth);
            layer.decay_rate = rates;
            const auto from = random_delta_state(random, layer);
            const auto x = random_rows(random, 130);
            expect_oracle(backend.name, run_delta_net(backend, "decay", layer, from, x, kChunked),
                          layer, from, x);
        }
    });
}

TEST(PromptDelta, what_is_not_finite_leaves_the_chunks_before_it_alone) {
    on_prompt_backends([](TestBackend& backend) {
        Random random("prompt delta not finite");
        const auto layer =
            random_delta_net(random, Types(quant::Type::f32), shape_of(32, 32), kInputWidth);
        const auto from = random_delta_state(random, layer);
        auto x = random_rows(random, 130);
        const auto want = run_delta_net(backend, "finite", layer, from, x, kChunked);
        x[70 * kInputWidth] = std::numeric_limits<float>::quiet_NaN();
        const auto got = run_delta_net(backend, "not finite", layer, from, x, kChunked);
        expect_same_bits(backend.name, slice(got.y, 0, 64, kInputWidth),
                         slice(want.y, 0, 64, kInputWidth));
        for (std::int64_t i = 0; i < kInputWidth; ++i) {
            EXPECT_NE(got.y[129 * kInputWidth + i], got.y[129 * kInputWidth + i]) << "column " << i;
        }
    });
}

}  // namespace
}  // namespace strata::test
