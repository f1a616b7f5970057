// op/stream_read.h on every backend in the build, against a float64 oracle.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
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

StreamReadInput rows_from(const StreamReadLayer& layer, const StreamReadInput& input,
                          std::int64_t first, std::int64_t count) {
    StreamReadInput rows;
    rows.residual = slice(input.residual, first, count, layer.streams * layer.width);
    if (!input.block_out.empty()) {
        rows.block_out = slice(input.block_out, first, count, layer.width);
        rows.block_inject = slice(input.block_inject, first, count, layer.streams);
    }
    return rows;
}

void expect_none(const std::string& what, const std::vector<float>& got) {
    const auto numbers = std::ranges::count_if(got, [](float value) { return !std::isnan(value); });
    EXPECT_EQ(numbers, 0) << what << ", of " << got.size();
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

// Windows of so many rows, each the last ones of the same input.
void expect_rows_alone(Random& random, const StreamReadLayer& layer,
                       std::span<const std::int64_t> counts, bool fold = true) {
    const std::int64_t all = std::ranges::max(counts);
    const StreamReadInput input = random_input(random, layer, all, fold);
    for (TestBackend& backend : backends()) {
        std::vector<StreamReadOutput> alone;
        for (std::int64_t t = 0; t < all; ++t) {
            alone.push_back(
                run_stream_read(backend, "alone", layer, rows_from(layer, input, t, 1)));
        }
        for (const std::int64_t rows : counts) {
            StreamReadOutput want;
            for (const StreamReadOutput& row : std::span(alone).last(rows)) {
                append(want.residual, row.residual);
                append(want.x, row.x);
                append(want.inject, row.inject);
            }
            expect_same_output(concat(backend.name, ", T=", rows),
                               run_stream_read(backend, "together", layer,
                                               rows_from(layer, input, all - rows, rows)),
                               want);
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

// Weights of eight bits on both sides of what tensor cores take by tiles: a stream's columns and
// the low rank of a few blocks, of a slice and a bit more, of all that a launch has.
struct EightBits {
    int streams;
    std::int64_t width;
    std::int64_t rank;
    bool tiles;  // goes by tiles, where there are any
};
constexpr EightBits kEightBits[] = {
    {4, 64, 64, true},   {4, 192, 128, true}, {3, 256, 320, true}, {2, 128, 64, true},
    {1, 256, 192, true}, {4, 1344, 64, true}, {1, 1280, 64, true}, {4, 32, 64, false},
    {3, 64, 64, false},  {4, 64, 96, false},  {4, 64, 384, false}, {5, 256, 64, false},
};
// All the slices that a launch has, and one more of each stream.
constexpr EightBits kAllSlices[] = {{4, 2560, 64, true}, {4, 2624, 64, false}};

StreamReadLayer eight_bits(Random& random, const EightBits& sizes) {
    return random_stream_read(random, Types(quant::Type::q8_0), sizes.streams, sizes.width,
                              sizes.rank);
}
std::string label_of(const EightBits& sizes) {
    return "S=" + std::to_string(sizes.streams) + " D=" + std::to_string(sizes.width) +
           " L=" + std::to_string(sizes.rank);
}

TEST(StreamRead, weights_of_eight_bits_match_the_oracle_at_the_edges_of_tiles) {
    Random random("stream_read eight bits");
    for (const EightBits& sizes : kEightBits) {
        auto layer = eight_bits(random, sizes);
        expect_oracle(label_of(sizes), layer, random_input(random, layer, 1, true));
        expect_oracle(label_of(sizes), layer, random_input(random, layer, 3, false));
        layer.inject = {};
        expect_oracle(label_of(sizes), layer, random_input(random, layer, 1, false));
    }
}

// A row this wide has a value near a tie now and then, which F32 rounds to the code beside the
// oracle's. These have whole codes: gains are alike in a group, and a residual with the block
// before is as many units as its code, of which a group has the largest.
StreamReadLayer with_even_gains(StreamReadLayer layer) {
    for (std::size_t i = 0; i < layer.norm.size(); ++i) layer.norm[i] = layer.norm[i / 32 * 32];
    return layer;
}
StreamReadInput whole_codes(Random& random, const StreamReadLayer& layer, std::int64_t rows,
                            bool fold) {
    constexpr float kUnit = 0x1p-6f;  // so that sums are exact
    StreamReadInput input = random_input(random, layer, rows, fold);
    for (float& value : input.block_out) value = std::round(value / kUnit) * kUnit;
    for (float& value : input.block_inject) value = std::round(value);
    for (std::size_t i = 0; i < input.residual.size(); ++i) {
        const std::int64_t code = i % 32 == 0 ? 127 : random.integer(-127, 127);
        input.residual[i] = static_cast<float>(code) * kUnit;
        if (!fold) continue;
        const auto width = static_cast<std::size_t>(layer.width);
        const std::size_t row = i / width / static_cast<std::size_t>(layer.streams);
        input.residual[i] -=
            input.block_inject[i / width] * input.block_out[row * width + i % width];
    }
    return input;
}

TEST(StreamRead, weights_of_eight_bits_match_the_oracle_where_rows_have_all_slices) {
    Random random("stream_read eight bits, all slices");
    for (const EightBits& sizes : kAllSlices) {
        const auto layer = with_even_gains(eight_bits(random, sizes));
        expect_oracle(label_of(sizes), layer, whole_codes(random, layer, 1, true));
        expect_oracle(label_of(sizes), layer, whole_codes(random, layer, 3, false));
    }
}

TEST(StreamRead, weights_of_eight_bits_match_the_oracle_for_every_number_of_rows) {
    Random random("stream_read eight bits, rows");
    const auto layer = eight_bits(random, {4, 192, 128, true});
    for (std::int64_t rows = 1; rows <= 9; ++rows) {
        expect_oracle("T=" + std::to_string(rows), layer, random_input(random, layer, rows, true));
    }
}

TEST(StreamRead, rows_have_their_bits_with_weights_of_eight_bits_in_any_window) {
    constexpr std::int64_t kCounts[] = {2, 3, 4, 5, 8, 9};
    Random random("stream_read eight bits, rows alone");
    auto layer = eight_bits(random, {4, 192, 128, true});
    expect_rows_alone(random, layer, kCounts);
    expect_rows_alone(random, layer, kCounts, false);
    layer.inject = {};
    expect_rows_alone(random, layer, std::span(kCounts).first(1));
    expect_rows_alone(random, eight_bits(random, {4, 1344, 64, true}), std::span(kCounts).first(1));
    expect_rows_alone(random, eight_bits(random, {3, 64, 64, false}), std::span(kCounts).first(1));
}

// Kernels of a read, less one for each weight in blocks, which puts its rows in device order.
std::int64_t kernels_of(TestBackend& backend, const StreamReadLayer& layer,
                        const StreamReadInput& input) {
    const auto before = cuda_counts();
    run_stream_read(backend, "launches", layer, input);
    std::int64_t kernels = (*cuda_counts() - *before).kernels;
    for (const TestWeight* weight : {&layer.down, &layer.up, &layer.inject}) {
        if (quant::info(weight->type).block > 1) --kernels;
    }
    return kernels;
}

// Two launches: what a token's time has room for.
TEST(StreamRead, weights_of_eight_bits_go_by_tiles_in_two_launches) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr || !cuda_counts()) GTEST_SKIP() << "nothing counts launches";
    Random random("stream_read eight bits, launches");
    const auto expect_launches = [&](const EightBits& sizes) {
        const auto layer = eight_bits(random, sizes);
        const std::int64_t kernels =
            kernels_of(*backend, layer, random_input(random, layer, 2, true));
        EXPECT_EQ(kernels == 2, sizes.tiles) << label_of(sizes) << ": " << kernels;
    };
    for (const EightBits& sizes : kEightBits) expect_launches(sizes);
    for (const EightBits& sizes : kAllSlices) expect_launches(sizes);
}

// What tiles would take, were it not for one weight: of another type, or with a factor.
struct OddLayer {
    std::string label;
    StreamReadLayer layer;
};
std::vector<OddLayer> odd_layers(Random& random) {
    constexpr float kFactor = 0.37f;
    constexpr std::pair<const char*, TestWeight StreamReadLayer::*> kWeights[] = {
        {"down", &StreamReadLayer::down},
        {"up", &StreamReadLayer::up},
        {"inject_weight", &StreamReadLayer::inject}};
    constexpr std::pair<quant::Type, quant::Type> kTypes[] = {
        {quant::Type::q8_0, quant::Type::bf16}, {quant::Type::bf16, quant::Type::q8_0}};
    std::vector<OddLayer> all;
    for (const auto& [type, other] : kTypes) {
        const auto even = random_stream_read(random, Types(type), 4, 192, 128);
        for (const auto& [name, odd] : kWeights) {
            const std::string label = concat(name, " of ", quant::info(type).name);
            OddLayer typed{label + " in another type", even};
            const TestWeight& weight = even.*odd;
            typed.layer.*odd = random_weight(random, other, weight.rows, weight.cols);
            all.push_back(std::move(typed));
            OddLayer scaled{label + " with a factor", even};
            (scaled.layer.*odd).factor = kFactor;
            all.push_back(std::move(scaled));
        }
    }
    return all;
}

TEST(StreamRead, a_weight_of_another_type_or_with_a_factor_matches_the_oracle) {
    Random random("stream_read odd weights");
    for (const auto& [label, layer] : odd_layers(random)) {
        expect_oracle(label, layer, random_input(random, layer, 1, true));
        expect_oracle(label, layer, random_input(random, layer, 3, false));
    }
}

TEST(StreamRead, a_weight_of_another_type_or_with_a_factor_does_not_go_by_tiles) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr || !cuda_counts()) GTEST_SKIP() << "nothing counts launches";
    Random random("stream_read odd weights, launches");
    for (const auto& [label, layer] : odd_layers(random)) {
        EXPECT_GT(kernels_of(*backend, layer, random_input(random, layer, 2, true)), 2) << label;
    }
}

// Of three rows; the others are as in `want`.
void expect_middle_row_none(const std::string& what, const std::vector<float>& got,
                            const std::vector<float>& want, std::int64_t width) {
    expect_none(what, slice(got, 1, 1, width));
    for (const std::int64_t t : {0, 2}) {
        expect_same_bits(what, slice(got, t, 1, width), slice(want, t, 1, width));
    }
}

// Neither an infinity of the residual, whose stream has the factor 0, nor a gain reaches the rest
// of its row but through the products.
TEST(StreamRead, an_infinity_makes_its_row_none_with_weights_of_eight_bits) {
    Random random("stream_read eight bits, infinity");
    const auto layer = eight_bits(random, {4, 192, 128, true});
    const StreamReadInput finite = random_input(random, layer, 3, false);
    StreamReadInput input = finite;
    input.residual[4 * 192 + 200] = std::numeric_limits<float>::infinity();
    for (TestBackend& backend : backends()) {
        const auto got = run_stream_read(backend, "infinity", layer, input);
        const auto want = run_stream_read(backend, "finite", layer, finite);
        expect_middle_row_none(backend.name + ", x", got.x, want.x, layer.width);
        expect_middle_row_none(backend.name + ", inject", got.inject, want.inject, layer.streams);
    }
}

TEST(StreamRead, a_gain_that_is_no_number_makes_all_rows_none_with_weights_of_eight_bits) {
    Random random("stream_read eight bits, gain");
    auto layer = eight_bits(random, {4, 192, 128, true});
    const StreamReadInput input = random_input(random, layer, 3, true);
    for (const float gain :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        layer.norm[200] = gain;
        for (TestBackend& backend : backends()) {
            const auto got = run_stream_read(backend, "gain", layer, input);
            expect_none(concat(backend.name, ", x, gain ", gain), got.x);
            expect_none(concat(backend.name, ", inject, gain ", gain), got.inject);
        }
    }
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
