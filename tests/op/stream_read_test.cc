// op/stream_read.h on every backend in the build, against a float64 oracle.

#include <gtest/gtest.h>

#include "tests/op/run/streams.h"
#include "tests/support/everywhere.h"

namespace strata::test {
namespace {

StreamReadInput random_input(Random& random, const StreamReadLayer& layer, std::int64_t rows,
                             bool fold) {
    StreamReadInput input;
    input.residual = random.floats(rows * layer.streams * layer.width, -2, 2);
    if (fold) {
        input.block_out = random.floats(rows * layer.width, -1, 1);
        input.block_inject = random.floats(rows * layer.streams, 0, 2);
    }
    return input;
}

void expect_oracle(const std::string& label, const StreamReadLayer& layer,
                   const StreamReadInput& input) {
    const StreamReadResult want = stream_read_oracle(
        layer, rows_of(input.residual, layer.streams * layer.width),
        rows_of(input.block_out, layer.width), rows_of(input.block_inject, layer.streams));
    on_backends(
        label, [&](TestBackend& b) { return run_stream_read(b, label, layer, input); },
        [&](const StreamReadOutput& got) {
            expect_close(label + ", residual", got.residual, want.residual, Tolerance::rounding());
            expect_close(label + ", x", got.x, want.x, Tolerance::projection());
            expect_close(label + ", inject", got.inject, want.inject, Tolerance::projection());
        });
}

StreamReadInput row_of(const StreamReadLayer& layer, const StreamReadInput& input, std::int64_t t) {
    StreamReadInput row;
    row.residual = slice(input.residual, t, 1, layer.streams * layer.width);
    if (!input.block_out.empty()) {
        row.block_out = slice(input.block_out, t, 1, layer.width);
        row.block_inject = slice(input.block_inject, t, 1, layer.streams);
    }
    return row;
}

TEST(StreamRead, matches_the_oracle_for_every_number_of_rows) {
    Random random("stream_read rows");
    const auto layer = random_stream_read(random, Types::mixed(), 4, 32, 32);
    for (const std::int64_t rows : kRowCounts) {
        const std::string label = "T=" + std::to_string(rows);
        expect_oracle(label, layer, random_input(random, layer, rows, false));
        expect_oracle(label + ", block_out", layer, random_input(random, layer, rows, true));
    }
}

TEST(StreamRead, matches_the_oracle_in_every_weight_type) {
    for (const quant::Type type : kWeightTypes) {
        Random random("stream_read types", static_cast<std::uint64_t>(type));
        const auto layer = random_stream_read(random, Types(type), 4, 96, 64);
        expect_oracle(std::string(quant::info(type).name), layer,
                      random_input(random, layer, 3, true));
    }
}

TEST(StreamRead, matches_the_oracle_at_widths_that_no_power_divides) {
    Random random("stream_read widths");
    for (const int streams : {1, 2, 3, 4, 5}) {
        for (const std::int64_t width : {1, 7, 33, 127}) {
            const auto layer =
                random_stream_read(random, Types(quant::Type::f32), streams, width, width % 5 + 1);
            expect_oracle("S=" + std::to_string(streams) + " D=" + std::to_string(width), layer,
                          random_input(random, layer, 3, true));
        }
    }
}

void expect_rows_alone(Random& random, const StreamReadLayer& layer,
                       std::span<const std::int64_t> counts) {
    for (const std::int64_t rows : counts) {
        const StreamReadInput input = random_input(random, layer, rows, true);
        for (TestBackend& backend : backends()) {
            const auto together = run_stream_read(backend, "together", layer, input);
            StreamReadOutput alone;
            for (std::int64_t t = 0; t < rows; ++t) {
                const auto row = run_stream_read(backend, "alone", layer, row_of(layer, input, t));
                append(alone.residual, row.residual);
                append(alone.x, row.x);
                append(alone.inject, row.inject);
            }
            expect_same_output(backend.name + ", T=" + std::to_string(rows), together, alone);
        }
    }
}

TEST(StreamRead, each_row_is_bit_identical_to_that_row_alone) {
    Random random("stream_read rows alone");
    expect_rows_alone(random, random_stream_read(random, Types::mixed(), 4, 32, 32), kRowCounts);
}

TEST(StreamRead, wide_rows_are_the_same_on_any_number_of_threads) {
    Random random("stream_read wide");
    const auto layer = random_stream_read(random, Types::mixed(), 4, 640, 96);
    expect_oracle("wide", layer, random_input(random, layer, 2, true));
    expect_rows_alone(random, layer, kWideRowCounts);
}

TEST(StreamRead, weights_of_one_type_change_nothing_of_that) {
    for (const quant::Type type : kWeightTypes) {
        Random random("stream_read one type", static_cast<std::uint64_t>(type));
        const auto layer = random_stream_read(random, Types(type), 4, 48, 40);
        expect_oracle("one type", layer, random_input(random, layer, 17, true));
        expect_rows_alone(random, layer, kWideRowCounts);
    }
}

TEST(StreamRead, streams_may_be_wider_than_a_slice) {
    Random random("stream_read slices");
    const auto layer = random_stream_read(random, Types(quant::Type::bf16), 3, 1408, 24);
    expect_oracle("two slices a stream", layer, random_input(random, layer, 2, true));
}

TEST(StreamRead, a_low_rank_may_fill_what_a_block_holds) {
    Random random("stream_read low");
    const auto layer = random_stream_read(random, Types(quant::Type::bf16), 4, 24, 320);
    expect_oracle("L=320", layer, random_input(random, layer, 2, true));
}

TEST(StreamRead, reading_after_the_fold_is_reading_the_written_residual) {
    Random random("stream_read fold");
    const auto layer = random_stream_read(random, Types::mixed(), 4, 32, 32);
    const StreamReadInput input = random_input(random, layer, 5, true);
    for (TestBackend& backend : backends()) {
        const auto folded = run_stream_read(backend, "folded", layer, input);
        const auto plain = run_stream_read(backend, "plain", layer, {.residual = folded.residual});
        expect_same_output(backend.name, folded, plain);
    }
}

TEST(StreamRead, block_inject_may_be_the_memory_of_inject) {
    Random random("stream_read alias");
    const auto layer = random_stream_read(random, Types::mixed(), 4, 32, 32);
    for (const std::int64_t rows : {1, 3, 65}) {
        StreamReadInput input = random_input(random, layer, rows, true);
        for (TestBackend& backend : backends()) {
            input.inject_in_place = false;
            const auto apart = run_stream_read(backend, "apart", layer, input);
            input.inject_in_place = true;
            const auto shared = run_stream_read(backend, "shared", layer, input);
            expect_same_output(backend.name + ", T=" + std::to_string(rows), shared, apart);
        }
    }
}

TEST(StreamRead, the_final_mixer_has_no_inject) {
    Random random("stream_read mixer");
    auto layer = random_stream_read(random, Types::mixed(), 4, 32, 32);
    layer.inject = {};
    expect_oracle("no inject_weight", layer, random_input(random, layer, 3, false));
    expect_oracle("no inject_weight, block_out", layer, random_input(random, layer, 3, true));
}

TEST(StreamRead, with_zero_down_and_inject_x_is_half_the_mean_and_inject_is_one) {
    Random random("stream_read zero");
    auto layer = random_stream_read(random, Types::mixed(), 4, 32, 32);
    layer.down = zero_weight(32, 128);
    layer.inject = zero_weight(4, 128);
    const StreamReadInput input = random_input(random, layer, 3, false);
    Rows half_mean;
    for (const Row& r : rows_of(input.residual, 128)) {
        const Row normed = grouped_rms_norm(r, layer.norm, layer.epsilon, 4);
        Row x(32);
        for (std::size_t i = 0; i < normed.size(); ++i) x[i % 32] += normed[i] / 8;
        half_mean.push_back(x);
    }
    for (TestBackend& backend : backends()) {
        const auto got = run_stream_read(backend, "zero", layer, input);
        expect_close(backend.name + ", x", got.x, half_mean, Tolerance::projection());
        expect_close(backend.name + ", inject", got.inject, Rows(3, Row(4, 1.0)),
                     Tolerance::exact());
    }
}

TEST(StreamRead, each_stream_has_a_statistic_of_its_own) {
    Random random("stream_read scales");
    const auto layer = random_stream_read(random, Types::mixed(), 4, 32, 32);
    StreamReadInput input = random_input(random, layer, 3, false);
    for (std::size_t i = 0; i < input.residual.size(); ++i) {
        const float sizes[] = {1e-3f, 1, 30, 1e3f};
        input.residual[i] *= sizes[i / 32 % 4];
    }
    expect_oracle("streams of very different size", layer, input);
}

TEST(StreamRead, a_zero_residual_reads_as_zero) {
    Random random("stream_read zero residual");
    const auto layer = random_stream_read(random, Types::mixed(), 4, 32, 32);
    expect_oracle("zero residual", layer, {.residual = std::vector<float>(2 * 128)});
}

}  // namespace
}  // namespace strata::test
