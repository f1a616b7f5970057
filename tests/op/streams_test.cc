// op/streams.h on every backend in the build, against float64 oracles.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/op/run/streams.h"
#include "tests/support/everywhere.h"

namespace strata::test {
namespace {

std::vector<std::int32_t> random_tokens(Random& random, std::int64_t rows,
                                        std::int64_t vocabulary) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t t = 0; t < rows; ++t) {
        tokens.push_back(static_cast<std::int32_t>(random.integer(0, vocabulary - 1)));
    }
    tokens[0] = static_cast<std::int32_t>(vocabulary - 1);
    return tokens;
}

std::vector<float> run_embed(TestBackend& backend, const TestWeight& table,
                             const std::vector<std::int32_t>& tokens, int streams) {
    Rig rig(backend, "embed");
    const auto rows = static_cast<std::int64_t>(tokens.size());
    const auto out = rig.output<float>("residual", rows, streams * table.cols);
    rig.ops().embed({.tokens = {rig.input("tokens", tokens), rows},
                     .table = rig.table("table", table),
                     .streams = streams,
                     .residual = out},
                    rig.queue());
    rig.finish();
    return rig.read(out.data);
}

TEST(Embed, every_stream_is_the_table_row_exactly) {
    for (const quant::Type type : kTableTypes) {
        Random random("embed", static_cast<std::uint64_t>(type));
        const TestWeight table = random_weight(random, type, 37, 96);
        for (const int streams : {1, 3, 4}) {
            for (const std::int64_t rows : {1, 5, 65}) {
                const auto tokens = random_tokens(random, rows, 37);
                std::vector<float> want;
                for (const std::int32_t token : tokens) {
                    const std::vector<float> row(table.row(token), table.row(token) + 96);
                    for (int s = 0; s < streams; ++s) append(want, row);
                }
                for (TestBackend& backend : backends()) {
                    expect_same_bits(backend.name + ", " + std::string(quant::info(type).name),
                                     run_embed(backend, table, tokens, streams), want);
                }
            }
        }
    }
}

struct MeanInput {
    std::vector<float> residual;
    std::vector<float> block_out;
    std::vector<float> block_inject;
};

// Where rows of the mean lie: how far apart, and how many such rows further on. What is between and
// before them stays.
struct MeanPlace {
    std::int64_t stride;
    std::int64_t first;
};

std::vector<float> run_mean(TestBackend& backend, const MeanInput& input, int streams,
                            std::int64_t width, const MeanPlace& place) {
    const auto [stride, first] = place;
    Rig rig(backend, "stream_mean");
    op::StreamMean args;
    args.residual = rig.input("residual", input.residual, streams * width);
    if (!input.block_out.empty()) {
        args.block_out = rig.input("block_out", input.block_out, width);
        args.block_inject = rig.input("block_inject", input.block_inject, streams);
    }
    args.streams = streams;
    const std::int64_t rows = args.residual.rows;
    constexpr float kBetween = 12345;
    const std::vector<float> before(static_cast<std::size_t>((first + rows) * stride), kBetween);
    args.mean = {rig.state("mean", before), rows, width};
    args.mean_stride = stride == width ? 0 : stride;
    if (first > 0) args.mean_row_at = rig.input("mean_row_at", std::vector<std::int64_t>{first});
    rig.ops().stream_mean(args, rig.queue());
    rig.finish();
    const auto all = rig.read(args.mean.data);
    EXPECT_EQ(std::count(all.begin(), all.begin() + first * stride, kBetween), first * stride);
    std::vector<float> mean;
    for (std::int64_t t = 0; t < rows; ++t) {
        const auto row = slice(all, first + t, 1, stride);
        append(mean, slice(row, 0, width, 1));
        const auto between = slice(row, width, stride - width, 1);
        EXPECT_EQ(std::count(between.begin(), between.end(), kBetween), stride - width);
    }
    return mean;
}

void check_mean(const MeanInput& input, int streams, std::int64_t width) {
    Rows residual = rows_of(input.residual, streams * width);
    if (!input.block_out.empty()) {
        write_streams(residual, rows_of(input.block_out, width),
                      rows_of(input.block_inject, streams));
    }
    // Streams may cancel, so that all rows together are the measure of size.
    Rows want(1);
    for (const Row& r : residual) {
        Row mean(static_cast<std::size_t>(width));
        for (std::size_t i = 0; i < r.size(); ++i) mean[i % mean.size()] += r[i] / streams;
        append(want[0], mean);
    }
    const std::string label = "S=" + std::to_string(streams) + " D=" + std::to_string(width) +
                              " T=" + std::to_string(residual.size());
    for (const MeanPlace& place : {MeanPlace{width, 0}, {2 * width + 5, 3}}) {
        on_backends(
            label, [&](TestBackend& b) { return run_mean(b, input, streams, width, place); },
            [&](const std::vector<float>& got) {
                expect_close(label, got, want, Tolerance::projection());
            });
    }
}

TEST(StreamMean, is_the_mean_of_the_streams_with_and_without_a_block) {
    Random random("stream_mean");
    for (const int streams : {1, 3, 4}) {
        for (const std::int64_t width : {1, 33, 96}) {
            for (const std::int64_t rows : {1, 2, 17, 65}) {
                MeanInput input{random.floats(rows * streams * width, -2, 2), {}, {}};
                check_mean(input, streams, width);
                input.block_out = random.floats(rows * width, -1, 1);
                input.block_inject = random.floats(rows * streams, 0, 2);
                check_mean(input, streams, width);
            }
        }
    }
}

std::vector<float> run_head(TestBackend& backend, const TestWeight& weight,
                            const std::vector<float>& hidden) {
    Rig rig(backend, "output_head");
    const auto in = rig.input("hidden", hidden, weight.cols);
    const auto out = rig.output<float>("logits", in.rows, weight.rows);
    rig.ops().output_head({.hidden = in, .weight = rig.weight("weight", weight), .logits = out},
                          rig.queue());
    rig.finish();
    return rig.read(out.data);
}

void check_head(const TestWeight& weight, const std::vector<float>& hidden) {
    Rows want;
    for (const Row& row : rows_of(hidden, weight.cols)) want.push_back(product(weight, row));
    const std::string label = std::string(quant::info(weight.type).name) +
                              " V=" + std::to_string(weight.rows) +
                              " T=" + std::to_string(want.size());
    on_backends(
        label, [&](TestBackend& b) { return run_head(b, weight, hidden); },
        [&](const std::vector<float>& got) {
            expect_close(label, got, want, Tolerance::projection());
        });
}

TEST(OutputHead, matches_the_oracle_in_every_weight_type_and_number_of_rows) {
    for (const quant::Type type : kWeightTypes) {
        Random random("output_head", static_cast<std::uint64_t>(type));
        const TestWeight weight = random_weight(random, type, 101, 96);
        for (const std::int64_t rows : kRowCounts) {
            check_head(weight, random.floats(rows * 96, -2, 2));
        }
    }
}

TEST(OutputHead, matches_the_oracle_at_widths_that_no_power_divides) {
    Random random("output_head widths");
    for (const quant::Type type : {quant::Type::f32, quant::Type::f16, quant::Type::bf16}) {
        for (const std::int64_t width : {1, 2, 7, 15, 31, 33, 127}) {
            check_head(random_weight(random, type, 5, width), random.floats(3 * width, -2, 2));
            // Enough of both for the kernels of prompts, and no multiple of what they take at once.
            check_head(random_weight(random, type, 45, width), random.floats(40 * width, -2, 2));
        }
    }
}

TEST(OutputHead, wide_rows_are_the_same_on_any_number_of_threads) {
    for (const quant::Type type : kWeightTypes) {
        Random random("output_head wide", static_cast<std::uint64_t>(type));
        const TestWeight weight = random_weight(random, type, 501, 512);
        for (const std::int64_t rows : kWideRowCounts) {
            check_head(weight, random.floats(rows * 512, -2, 2));
        }
    }
}

TEST(OutputHead, each_row_is_bit_identical_to_that_row_alone) {
    for (const quant::Type type : kWeightTypes) {
        Random random("output_head alone", static_cast<std::uint64_t>(type));
        const TestWeight weight = random_weight(random, type, 67, 96);
        for (const std::int64_t rows : kRowCounts) {
            const auto hidden = random.floats(rows * 96, -2, 2);
            for (TestBackend& backend : backends()) {
                std::vector<float> alone;
                for (std::int64_t t = 0; t < rows; ++t) {
                    append(alone, run_head(backend, weight, slice(hidden, t, 1, 96)));
                }
                expect_same_bits(backend.name + ", T=" + std::to_string(rows),
                                 run_head(backend, weight, hidden), alone);
            }
        }
    }
}

void check_fuse(const MtpFuseLayer& layer, const std::vector<std::int32_t>& tokens,
                const std::vector<float>& residual) {
    const std::int64_t channels = layer.streams * layer.width;
    const Rows want = mtp_fuse_oracle(layer, tokens, rows_of(residual, channels));
    const std::string label = "T=" + std::to_string(tokens.size());
    on_backends(
        label,
        [&](TestBackend& b) { return run_mtp_fuse(b, label, layer, tokens, residual, false); },
        [&](const std::vector<float>& got) {
            expect_close(label, got, want, Tolerance::projection());
        });
}

TEST(MtpFuse, matches_the_oracle_for_every_number_of_rows) {
    Random random("mtp_fuse rows");
    const auto layer = random_mtp_fuse(random, Types::mixed(), 4, 32, 50);
    for (const std::int64_t rows : kRowCounts) {
        check_fuse(layer, random_tokens(random, rows, 50), random.floats(rows * 128, -2, 2));
    }
}

TEST(MtpFuse, wide_rows_are_the_same_on_any_number_of_threads) {
    Random random("mtp_fuse wide");
    const auto layer = random_mtp_fuse(random, Types::mixed(), 4, 320, 50);
    for (const std::int64_t rows : kWideRowCounts) {
        check_fuse(layer, random_tokens(random, rows, 50), random.floats(rows * 4 * 320, -2, 2));
    }
}

TEST(MtpFuse, matches_the_oracle_in_every_weight_type) {
    for (const quant::Type type : kWeightTypes) {
        Random random("mtp_fuse types", static_cast<std::uint64_t>(type));
        const auto layer = random_mtp_fuse(random, Types(type), 3, 96, 50);
        check_fuse(layer, random_tokens(random, 3, 50), random.floats(3 * 3 * 96, -2, 2));
    }
}

TEST(MtpFuse, matches_the_oracle_at_odd_widths) {
    Random random("mtp_fuse widths");
    for (const std::int64_t width : {1, 7, 33}) {
        const auto layer = random_mtp_fuse(random, Types(quant::Type::bf16), 3, width, 9);
        check_fuse(layer, random_tokens(random, 2, 9), random.floats(2 * 3 * width, -2, 2));
    }
}

TEST(MtpFuse, the_hidden_norm_is_one_statistic_over_all_streams) {
    Random random("mtp_fuse statistic");
    auto layer = random_mtp_fuse(random, Types(quant::Type::f32), 2, 4, 9);
    layer.table = zero_weight(9, 4);
    std::vector<float> fuse(4 * 8);
    for (std::size_t i = 0; i < 4; ++i) fuse[i * 8 + 4 + i] = 1;  // [0 | identity]
    layer.fuse = make_weight(quant::Type::f32, 4, 8, fuse);
    layer.norm_hidden.assign(8, 1.0f);
    layer.epsilon = 1e-6f;
    // Mean square (4 * 1 + 4 * 49) / 8 = 25: divided by 5, not by 1 and 7.
    const std::vector<float> residual = {1, 1, 1, 1, 7, 7, 7, 7};
    const std::vector<float> want = {0.2f, 0.2f, 0.2f, 0.2f, 1.4f, 1.4f, 1.4f, 1.4f};
    for (TestBackend& backend : backends()) {
        expect_close(backend.name, run_mtp_fuse(backend, "statistic", layer, {3}, residual, false),
                     want, 8, Tolerance::projection());
    }
}

TEST(MtpFuse, out_may_be_the_memory_of_the_residual) {
    Random random("mtp_fuse alias");
    const auto layer = random_mtp_fuse(random, Types::mixed(), 4, 32, 50);
    for (const std::int64_t rows : {1, 3, 65}) {
        const auto tokens = random_tokens(random, rows, 50);
        const auto residual = random.floats(rows * 128, -2, 2);
        for (TestBackend& backend : backends()) {
            expect_same_bits(backend.name,
                             run_mtp_fuse(backend, "in place", layer, tokens, residual, true),
                             run_mtp_fuse(backend, "apart", layer, tokens, residual, false));
        }
    }
}

TEST(MtpFuse, each_row_is_bit_identical_to_that_row_alone) {
    Random random("mtp_fuse alone");
    const auto layer = random_mtp_fuse(random, Types::mixed(), 4, 32, 50);
    for (const std::int64_t rows : kRowCounts) {
        const auto tokens = random_tokens(random, rows, 50);
        const auto residual = random.floats(rows * 128, -2, 2);
        for (TestBackend& backend : backends()) {
            std::vector<float> alone;
            for (std::int64_t t = 0; t < rows; ++t) {
                append(alone, run_mtp_fuse(backend, "alone", layer, {tokens[t]},
                                           slice(residual, t, 1, 128), false));
            }
            expect_same_bits(backend.name + ", T=" + std::to_string(rows),
                             run_mtp_fuse(backend, "together", layer, tokens, residual, false),
                             alone);
        }
    }
}

}  // namespace
}  // namespace strata::test
