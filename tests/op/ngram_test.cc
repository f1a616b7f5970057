// op/ngram.h on every backend in the build, against a float64 oracle.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/op/run/ngram.h"
#include "tests/support/everywhere.h"

namespace strata::test {
namespace {

std::vector<float> run_gather(TestBackend& backend, const TestWeight& table,
                              const std::vector<std::int64_t>& rows, std::int64_t heads) {
    Rig rig(backend, "ngram_gather");
    const auto in = rig.input("rows", rows, heads);
    const auto out = rig.output<float>("e", in.rows, heads * table.cols);
    rig.ops().ngram_gather({.table = rig.table("table", table), .rows = in, .e = out}, rig.queue());
    rig.finish();
    return rig.read(out.data);
}

TEST(NgramGather, takes_the_rows_of_the_table_exactly) {
    for (const quant::Type type : kTableTypes) {
        Random random("ngram_gather", static_cast<std::uint64_t>(type));
        const TestWeight table = random_weight(random, type, 211, 32);
        for (const std::int64_t heads : {1, 4, 16}) {
            for (const std::int64_t tokens : {1, 3, 65}) {
                std::vector<std::int64_t> rows = {210};
                while (static_cast<std::int64_t>(rows.size()) < tokens * heads) {
                    rows.push_back(random.integer(0, 210));
                }
                rows.back() = 0;
                std::vector<float> want;
                for (const std::int64_t row : rows) {
                    append(want, std::vector<float>(table.row(row), table.row(row) + 32));
                }
                for (TestBackend& backend : backends()) {
                    expect_same_bits(backend.name + ", " + std::string(quant::info(type).name),
                                     run_gather(backend, table, rows, heads), want);
                }
            }
        }
    }
}

NgramMixInput random_input(Random& random, const NgramMixLayer& layer, std::int64_t rows,
                           bool fold) {
    NgramMixInput input;
    input.e = random.floats(rows * layer.key.cols, -2, 2);
    input.residual = random.floats(rows * layer.channels(), -2, 2);
    input.history = random.floats(layer.history_rows() * layer.channels(), -2, 2);
    if (fold) {
        input.block_out = random.floats(rows * layer.width, -1, 1);
        input.block_inject = random.floats(rows * layer.streams, 0, 2);
    }
    return input;
}

void expect_oracle(const std::string& label, const NgramMixLayer& layer,
                   const NgramMixInput& input) {
    const std::int64_t channels = layer.channels();
    const NgramMixResult want =
        ngram_mix_oracle(layer, rows_of(input.e, layer.key.cols), rows_of(input.residual, channels),
                         rows_of(input.history, channels), rows_of(input.block_out, layer.width),
                         rows_of(input.block_inject, layer.streams));
    on_backends(
        label, [&](TestBackend& b) { return run_ngram_mix(b, label, layer, input); },
        [&](const NgramMixOutput& got) {
            expect_close(label + ", residual", got.residual, want.residual,
                         Tolerance::projection());
            expect_close(label + ", history", got.history, want.history, Tolerance::projection());
            if (!input.trace) return;
            expect_close(label + ", trace", got.trace, want.normed, Tolerance::projection());
        });
}

// Rows first .. first+n-1 of an input; the history stays the input's.
NgramMixInput part_of(const NgramMixLayer& layer, const NgramMixInput& input, std::int64_t first,
                      std::int64_t n) {
    NgramMixInput some;
    some.e = slice(input.e, first, n, layer.key.cols);
    some.residual = slice(input.residual, first, n, layer.channels());
    some.history = input.history;
    if (!input.block_out.empty()) {
        some.block_out = slice(input.block_out, first, n, layer.width);
        some.block_inject = slice(input.block_inject, first, n, layer.streams);
    }
    return some;
}

// The same rows in parts of `sizes` rows (the last size again and again), state carried on.
NgramMixOutput run_in_parts(TestBackend& backend, const NgramMixLayer& layer,
                            const NgramMixInput& input, const std::vector<std::int64_t>& sizes) {
    const std::int64_t rows = static_cast<std::int64_t>(input.e.size()) / layer.key.cols;
    NgramMixOutput all;
    all.history = input.history;
    std::size_t next = 0;
    for (std::int64_t first = 0; first < rows;) {
        const std::int64_t n = std::min(sizes[std::min(next++, sizes.size() - 1)], rows - first);
        NgramMixInput some = part_of(layer, input, first, n);
        some.history = all.history;
        some.in_place = next % 2 == 0;
        const NgramMixOutput got = run_ngram_mix(backend, "in parts", layer, some);
        append(all.residual, got.residual);
        append(all.trace, got.trace);
        all.history = got.history;
        first += n;
    }
    return all;
}

TEST(NgramMix, matches_the_oracle_for_every_number_of_rows) {
    Random random("ngram_mix rows");
    const auto layer = random_ngram_mix(random, Types::mixed(), {});
    for (const std::int64_t rows : kRowCounts) {
        const std::string label = "T=" + std::to_string(rows);
        expect_oracle(label, layer, random_input(random, layer, rows, false));
        expect_oracle(label + ", block_out", layer, random_input(random, layer, rows, true));
    }
}

TEST(NgramMix, matches_the_oracle_in_every_weight_type) {
    for (const quant::Type type : kWeightTypes) {
        Random random("ngram_mix types", static_cast<std::uint64_t>(type));
        const auto layer = random_ngram_mix(random, Types(type), {.width = 96, .embedding = 96});
        expect_oracle(std::string(quant::info(type).name), layer,
                      random_input(random, layer, 3, true));
    }
}

TEST(NgramMix, matches_the_oracle_in_odd_shapes) {
    Random random("ngram_mix shapes");
    const NgramMixSizes shapes[] = {
        {.streams = 1, .width = 7, .embedding = 5, .kernel = 2, .dilation = 1},
        {.streams = 3, .width = 33, .embedding = 9, .kernel = 3, .dilation = 2},
        {.streams = 5, .width = 1, .embedding = 1, .kernel = 5, .dilation = 4},
        {.streams = 2, .width = 12, .embedding = 31, .kernel = 1, .dilation = 3}};
    for (const NgramMixSizes& sizes : shapes) {
        const auto layer = random_ngram_mix(random, Types(quant::Type::f32), sizes);
        for (const std::int64_t rows : {1, 2, 7, 20}) {
            expect_oracle("S=" + std::to_string(sizes.streams) +
                              " K=" + std::to_string(sizes.kernel) + " T=" + std::to_string(rows),
                          layer, random_input(random, layer, rows, true));
        }
    }
}

TEST(NgramMix, wide_rows_are_the_same_on_any_number_of_threads) {
    Random random("ngram_mix wide");
    const auto layer = random_ngram_mix(random, Types::mixed(), {.width = 320, .embedding = 320});
    const NgramMixInput input = random_input(random, layer, 17, true);
    expect_oracle("wide", layer, part_of(layer, input, 0, 1));
    expect_oracle("wide, T=17", layer, input);
    for (TestBackend& backend : backends()) {
        expect_same_output(backend.name, run_in_parts(backend, layer, input, {1, 2, 5}),
                           run_ngram_mix(backend, "together", layer, input));
    }
}

TEST(NgramMix, the_first_rows_of_a_sequence_see_zeros_before_it) {
    Random random("ngram_mix start");
    const auto layer = random_ngram_mix(random, Types::mixed(), {});
    for (std::int64_t rows = 1; rows <= layer.history_rows() + 1; ++rows) {
        NgramMixInput input = random_input(random, layer, rows, false);
        input.history.assign(input.history.size(), 0.0f);
        expect_oracle("zero history, T=" + std::to_string(rows), layer, input);
    }
}

TEST(NgramMix, any_split_of_the_rows_gives_the_same_bits) {
    Random random("ngram_mix splits");
    const auto layer = random_ngram_mix(random, Types::mixed(), {});
    for (const std::int64_t rows : {2, 5, 17, 65}) {
        const NgramMixInput input = random_input(random, layer, rows, true);
        for (TestBackend& backend : backends()) {
            const auto together = run_ngram_mix(backend, "together", layer, input);
            const std::string label = backend.name + ", T=" + std::to_string(rows);
            expect_same_output(label + " one by one", run_in_parts(backend, layer, input, {1}),
                               together);
            expect_same_output(label + " in parts", run_in_parts(backend, layer, input, {3, 1, 8}),
                               together);
        }
    }
}

TEST(NgramMix, history_may_be_written_in_place_and_the_trace_left_out) {
    Random random("ngram_mix in place");
    const auto layer = random_ngram_mix(random, Types::mixed(), {});
    for (const std::int64_t rows : {1, 4, 9, 10, 30}) {
        NgramMixInput input = random_input(random, layer, rows, false);
        for (TestBackend& backend : backends()) {
            input.in_place = false;
            input.trace = true;
            const auto apart = run_ngram_mix(backend, "apart", layer, input);
            input.in_place = true;
            input.trace = false;
            const auto shared = run_ngram_mix(backend, "in place", layer, input);
            const std::string label = backend.name + ", T=" + std::to_string(rows);
            expect_same_bits(label + ", residual", shared.residual, apart.residual);
            expect_same_bits(label + ", history", shared.history, apart.history);
        }
    }
}

// Without a convolution only the gate is left: R + gate * val.
void expect_gate(const char* label, NgramMixLayer layer, const NgramMixInput& input, double gate) {
    layer.conv.assign(layer.conv.size(), 0.0f);
    Rows want = rows_of(input.residual, layer.channels());
    const Rows e = rows_of(input.e, layer.key.cols);
    for (std::size_t t = 0; t < want.size(); ++t) {
        const Row value = product(layer.value, e[t]);
        for (std::size_t i = 0; i < want[t].size(); ++i) {
            want[t][i] += gate * value[i % value.size()];
        }
    }
    for (TestBackend& backend : backends()) {
        expect_close(backend.name + ", " + label,
                     run_ngram_mix(backend, label, layer, input).residual, want,
                     Tolerance::projection());
    }
}

TEST(NgramMix, a_score_of_zero_gives_a_gate_of_one_half) {
    Random random("ngram_mix zero score");
    auto layer = random_ngram_mix(random, Types::mixed(), {});
    NgramMixInput input = random_input(random, layer, 3, false);
    input.residual.assign(input.residual.size(), 0.0f);
    expect_gate("zero query", layer, input, 0.5);
    input = random_input(random, layer, 3, false);
    layer.norm_key.assign(layer.norm_key.size(), 0.0f);
    expect_gate("zero key", layer, input, 0.5);
}

TEST(NgramMix, a_tiny_score_counts_as_a_millionth_with_its_sign) {
    Random random("ngram_mix tiny score");
    auto layer = random_ngram_mix(random, Types(quant::Type::f32), {.streams = 1});
    NgramMixInput input = random_input(random, layer, 1, false);
    // The query is the key itself, up to a factor, so that the score has a known sign.
    const Row key = product(layer.key, rows_of(input.e, layer.key.cols)[0]);
    input.residual = flat({key});
    layer.norm_key.assign(layer.norm_key.size(), 1.0f);
    layer.norm_query.assign(layer.norm_query.size(), 1e-9f);
    expect_gate("positive", layer, input, 1 / (1 + std::exp(-1e-3)));
    layer.norm_query.assign(layer.norm_query.size(), -1e-9f);
    expect_gate("negative", layer, input, 1 / (1 + std::exp(1e-3)));
}

}  // namespace
}  // namespace strata::test
