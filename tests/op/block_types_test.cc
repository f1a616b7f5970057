// Products with weights in types of blocks (op/weight.h) on every set of instructions: in the op
// that is nothing else, and in those that have kernels or shapes of their own.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "base/text.h"
#include "op/streams.h"
#include "tests/op/run/experts.h"
#include "tests/op/run/streams.h"
#include "tests/support/everywhere.h"

namespace strata::test {
namespace {

std::string name_of(quant::Type type) { return std::string(quant::info(type).name); }

// More than one panel of columns, where the type has narrower ones the last of them not full.
std::int64_t width_of(quant::Type type) { return quant::info(type).block == 256 ? 512 : 320; }

std::vector<float> run_product(TestBackend& backend, const TestWeight& weight,
                               const std::vector<float>& x) {
    Rig rig(backend, "product, " + name_of(weight.type));
    op::OutputHead args;
    args.hidden = rig.input("hidden", x, weight.cols);
    args.weight = rig.weight("weight", weight);
    args.logits = rig.output<float>("logits", args.hidden.rows, weight.rows);
    rig.ops().output_head(args, rig.queue());
    rig.finish();
    return rig.read(args.logits.data);
}

void check_product(const TestWeight& weight, const std::vector<float>& x) {
    Rows want;
    for (const Row& row : rows_of(x, weight.cols)) want.push_back(product(weight, row));
    const std::string label = name_of(weight.type) + ", T=" + std::to_string(want.size());
    on_backends(
        label, [&](TestBackend& b) { return run_product(b, weight, x); },
        [&](const std::vector<float>& got) {
            expect_close(label, got, want, Tolerance::projection());
        });
}

TEST(BlockTypes, match_the_oracle_in_every_type) {
    for (const quant::Type type : kBlockTypes) {
        Random random("block types", static_cast<std::uint64_t>(type));
        const std::int64_t width = width_of(type);
        const TestWeight weight = random_blocks(random, type, 37, width);
        for (const std::int64_t rows : {1, 2, 3, 6, 23}) {
            check_product(weight, random.floats(rows * width, -2, 2));
        }
    }
}

TEST(BlockTypes, each_row_is_bit_identical_to_that_row_alone) {
    std::vector<quant::Type> all(std::begin(kBlockTypes), std::end(kBlockTypes));
    all.insert(all.end(), std::begin(kWeightTypes), std::end(kWeightTypes));
    for (const quant::Type type : all) {
        Random random("block types alone", static_cast<std::uint64_t>(type));
        const std::int64_t width = width_of(type);
        const bool blocks = quant::info(type).block > 1;
        const TestWeight weight = blocks ? random_blocks(random, type, 19, width)
                                         : random_weight(random, type, 19, width);
        const auto x = random.floats(39 * width, -2, 2);
        for (TestBackend& backend : backends()) {
            const auto together = run_product(backend, weight, x);
            const std::string label = backend.name + ", " + name_of(type);
            // With these, every number of rows that kernels take at once.
            for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9}) {
                expect_same_bits(label, run_product(backend, weight, slice(x, 30, rows, width)),
                                 slice(together, 30, rows, weight.rows));
            }
        }
    }
}

// Widths whose rows kernels hold in registers, and formats without blocks beside them.
TEST(BlockTypes, wide_rows_match_the_oracle_and_are_bit_identical_to_each_row_alone) {
    struct Case {
        quant::Type type;
        std::int64_t width;
    };
    for (const Case& own : {Case{quant::Type::q8_0, 2560}, Case{quant::Type::q8_0, 4096},
                            Case{quant::Type::q8_0, 5120}, Case{quant::Type::q8_0, 6144},
                            Case{quant::Type::q8_0, 7680}, Case{quant::Type::q4_0, 2560},
                            Case{quant::Type::q4_0, 4096}, Case{quant::Type::q4_0, 7680},
                            Case{quant::Type::q5_0, 2560}, Case{quant::Type::q5_0, 4096},
                            Case{quant::Type::q5_0, 7680}, Case{quant::Type::f32, 2560},
                            Case{quant::Type::bf16, 2560}}) {
        Random random("block types wide", static_cast<std::uint64_t>(own.type));
        const bool blocks = quant::info(own.type).block > 1;
        // As many that a small device's blocks have several parts of them each.
        const std::int64_t outs = blocks ? 53 : 11;
        const TestWeight weight = blocks ? random_blocks(random, own.type, outs, own.width)
                                         : random_weight(random, own.type, outs, own.width);
        const auto x = random.floats(6 * own.width, -2, 2);
        check_product(weight, x);
        for (TestBackend& backend : backends()) {
            const auto together = run_product(backend, weight, x);
            for (const std::int64_t rows : {1, 2, 3}) {
                expect_same_bits(backend.name + ", " + name_of(own.type),
                                 run_product(backend, weight, slice(x, 2, rows, own.width)),
                                 slice(together, 2, rows, weight.rows));
            }
        }
    }
}

// Windows on both sides of what kernels take at once, in weights with a part of an eight of rows.
TEST(BlockTypes, wide_rows_are_bit_identical_in_windows_of_every_kind) {
    const std::pair<quant::Type, std::int64_t> kinds[] = {{quant::Type::q8_0, 2560},
                                                          {quant::Type::q8_0, 5120},
                                                          {quant::Type::q8_0, 6144},
                                                          {quant::Type::q4_0, 2560},
                                                          {quant::Type::q5_0, 2560}};
    for (const auto& [type, width] : kinds) {
        Random random("block types windows", static_cast<std::uint64_t>(width));
        const TestWeight weight = random_blocks(random, type, 19, width);
        const auto x = random.floats(9 * width, -2, 2);
        check_product(weight, x);
        for (TestBackend& backend : backends()) {
            std::vector<float> alone;
            for (std::int64_t t = 0; t < 9; ++t) {
                append(alone, run_product(backend, weight, slice(x, t, 1, width)));
            }
            for (const std::int64_t rows : {3, 4, 5, 8, 9}) {
                expect_same_bits(
                    concat(backend.name, ", ", quant::info(type).name, ", ", width, ", T=", rows),
                    run_product(backend, weight, slice(x, 9 - rows, rows, width)),
                    slice(alone, 9 - rows, rows, weight.rows));
            }
        }
    }
}

TEST(BlockTypes, a_factor_multiplies_every_product) {
    for (const quant::Type type : {quant::Type::nvfp4, quant::Type::q8_0}) {
        Random random("block types factor", static_cast<std::uint64_t>(type));
        TestWeight weight = random_blocks(random, type, 37, 320);
        weight.factor = 0.37f;
        for (const std::int64_t rows : {1, 3, 39}) {
            const auto x = random.floats(rows * 320, -2, 2);
            Rows want;
            for (const Row& row : rows_of(x, 320)) want.push_back(product(weight, row));
            for (TestBackend& backend : backends()) {
                if (!backend.backend.device->has_factors()) continue;
                expect_close(backend.name, run_product(backend, weight, x), want,
                             Tolerance::projection());
            }
        }
    }
}

TEST(BlockTypes, rows_of_extreme_size_are_rounded_by_the_same_rule) {
    for (const quant::Type type : {quant::Type::q8_0, quant::Type::q4_k, quant::Type::iq3_xxs}) {
        Random random("block types sizes", static_cast<std::uint64_t>(type));
        const std::int64_t width = width_of(type);
        const TestWeight weight = random_blocks(random, type, 16, width);
        for (const double size : {1e-30, 1e30}) {
            check_product(weight, random.floats(2 * width, -size, size));
        }
        // Too small for an inverse, and zero.
        for (const double size : {1e-38, 0.0}) {
            const auto x = random.floats(width, -size, size);
            for (TestBackend& backend : backends()) {
                const auto got = run_product(backend, weight, x);
                for (const float y : got) EXPECT_EQ(y, 0.0f) << backend.name << name_of(type);
            }
        }
    }
}

TEST(BlockTypes, a_value_that_is_no_number_shows_in_its_row_alone) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        Random random("block types nan");
        const TestWeight weight = random_blocks(random, quant::Type::q8_0, 16, 96);
        auto x = random.floats(3 * 96, -2, 2);
        const auto row = slice(x, 2, 1, 96);
        x[96 + 40] = bad;
        for (TestBackend& backend : backends()) {
            const auto got = run_product(backend, weight, x);
            for (int r = 0; r < 16; ++r) EXPECT_TRUE(std::isnan(got[16 + r])) << backend.name;
            expect_same_bits(backend.name, slice(got, 2, 1, 16), run_product(backend, weight, row));
        }
    }
}

// Experts of 256 x 256 in three types, and a shared one of a fourth.
ExpertsLayer layer_of(Random& random, quant::Type gate, quant::Type up, quant::Type down) {
    ExpertsLayer layer;
    layer.active = 3;
    layer.router = random_weight(random, quant::Type::q8_0, 6, 256);
    for (int e = 0; e < 6; ++e) {
        layer.gate.push_back(random_weight(random, gate, 256, 256));
        layer.up.push_back(random_weight(random, up, 256, 256));
        layer.down.push_back(random_weight(random, down, 256, 256));
    }
    layer.shared_scale = random_weight(random, quant::Type::q4_0, 1, 256);
    layer.shared_gate = random_weight(random, up, 32, 256);
    layer.shared_up = random_weight(random, quant::Type::q5_0, 32, 256);
    layer.shared_down = random_weight(random, quant::Type::q8_0, 256, 32);
    return layer;
}

TEST(BlockTypes, of_experts_match_the_oracle_and_rows_alone) {
    using quant::Type;
    const Type cases[][3] = {{Type::iq3_xxs, Type::iq3_xxs, Type::q2_0},
                             {Type::q4_k, Type::q8_0, Type::q6_k},
                             {Type::bf16, Type::q4_0, Type::f32}};
    for (const auto& [gate, up, down] : cases) {
        Random random("block types experts", static_cast<std::uint64_t>(gate));
        const ExpertsLayer layer = layer_of(random, gate, up, down);
        const auto x = random.floats(9 * 256, -2, 2);
        const ExpertsResult want = experts_oracle(layer, rows_of(x, 256));
        ASSERT_GT(want.margin, kRankingMargin);
        const std::string label = name_of(gate);
        on_backends(
            label, [&](TestBackend& b) { return run_experts(b, label, layer, x); },
            [&](const ExpertsOutput& got) {
                expect_equal(label, got.chosen, want.chosen);
                expect_close(label, got.y, want.y, Tolerance::rounded_inputs());
            });
        for (TestBackend& backend : backends()) {
            const auto all = run_experts(backend, label, layer, x);
            const auto one = run_experts(backend, label, layer, slice(x, 4, 1, 256));
            expect_same_bits(backend.name + label, one.y, slice(all.y, 4, 1, 256));
        }
    }
}

TEST(BlockTypes, a_half_of_a_matrix_may_start_within_a_block) {
    for (const auto& [type, width] :
         {std::pair{quant::Type::q8_0, 64}, {quant::Type::q2_0, 32}, {quant::Type::q4_k, 128}}) {
        Random random("block types halves", static_cast<std::uint64_t>(type));
        MtpFuseLayer layer = random_mtp_fuse(random, Types(quant::Type::f32), 2, width, 9);
        layer.fuse = random_weight(random, type, width, 2 * width);
        const auto residual = random.floats(3 * 2 * width, -2, 2);
        const auto want = mtp_fuse_oracle(layer, {1, 8, 3}, rows_of(residual, 2 * width));
        const std::string label = name_of(type);
        on_backends(
            label,
            [&](TestBackend& b) {
                return run_mtp_fuse(b, label, layer, {1, 8, 3}, residual, false);
            },
            [&](const std::vector<float>& got) {
                expect_close(label, got, want, Tolerance::rounded_inputs());
            });
    }
}

}  // namespace
}  // namespace strata::test
