// The prompt route of op/weight.h, on the backends that have one: each op against its float64
// oracle, whose products round as the route does; and a row's bits in whatever chunk it comes.

#include <gtest/gtest.h>

#include <array>

#include "tests/op/run/attention_check.h"
#include "tests/op/run/experts.h"
#include "tests/op/run/ngram.h"
#include "tests/op/run/streams.h"
#include "tests/support/everywhere.h"

namespace strata::test {
namespace {

std::vector<float> run_head(TestBackend& backend, const TestWeight& weight,
                            const std::vector<float>& x) {
    Rig rig(backend, std::string("head, ") + std::string(quant::info(weight.type).name));
    op::OutputHead args;
    args.hidden = rig.input("hidden", x, weight.cols);
    args.weight = rig.weight("weight", weight);
    args.logits = rig.output<float>("logits", args.hidden.rows, weight.rows);
    rig.ops().output_head(args, rig.queue());
    rig.finish();
    return rig.read(args.logits.data);
}

Rows products(const TestWeight& weight, const std::vector<float>& x) {
    Rows want;
    for (const Row& row : rows_of(x, weight.cols)) want.push_back(product(weight, row));
    return want;
}

TEST(Prompt, products_match_the_oracle_on_both_sides_of_a_tile) {
    on_prompt_backends([](TestBackend& backend) {
        for (const auto& [rows, outs, cols] : {std::array{1, 1, 1}, {63, 65, 33}, {65, 130, 200}}) {
            Random random("prompt products", static_cast<std::uint64_t>(rows));
            const auto weight = random_weight(random, quant::Type::f32, outs, cols);
            const auto x = random.floats(rows * cols, -2, 2);
            expect_close(backend.name + ", T=" + std::to_string(rows), run_head(backend, weight, x),
                         products(weight, x), Tolerance::projection());
        }
    });
}

TEST(Prompt, products_match_the_oracle_in_every_type) {
    on_prompt_backends([](TestBackend& backend) {
        const auto check = [&](const TestWeight& weight, Random& random) {
            const auto x = random.floats(3 * weight.cols, -2, 2);
            expect_close(backend.name + std::string(quant::info(weight.type).name),
                         run_head(backend, weight, x), products(weight, x),
                         Tolerance::projection());
        };
        for (const quant::Type type : {quant::Type::f16, quant::Type::bf16}) {
            Random random("prompt types", static_cast<std::uint64_t>(type));
            check(random_weight(random, type, 40, 192), random);
        }
        for (const quant::Type type : kBlockTypes) {
            Random random("prompt types", static_cast<std::uint64_t>(type));
            check(random_blocks(random, type, 19, quant::info(type).block == 256 ? 512 : 320),
                  random);
        }
    });
}

TEST(Prompt, a_row_of_a_product_has_the_same_bits_in_every_chunk) {
    on_prompt_backends([](TestBackend& backend) {
        Random random("prompt chunks");
        // The first is long enough for large tiles where a device is as small as the emulated one.
        for (const auto& [count, outs, cols] :
             {std::array{130, 200, 512}, {131, 200, 512}, {300, 300, 64}}) {
            const auto weight = random_weight(random, quant::Type::bf16, outs, cols);
            const auto x = random.floats(count * cols, -2, 2);
            const auto together = run_head(backend, weight, x);
            for (const auto& [first, rows] : {std::pair{0, 1}, {70, 3}, {90, 40}}) {
                expect_same_bits(backend.name,
                                 run_head(backend, weight, slice(x, first, rows, cols)),
                                 slice(together, first, rows, outs));
            }
        }
    });
}

TEST(Prompt, stream_read_matches_the_oracle_and_itself_in_every_chunk) {
    on_prompt_backends([](TestBackend& backend) {
        for (const auto& [streams, width, rank] :
             {std::array{4, 33, 32}, {4, 36, 70}, {2, 96, 5}}) {
            Random random("prompt stream_read", static_cast<std::uint64_t>(width));
            const auto layer = random_stream_read(random, Types::mixed(), streams, width, rank);
            const std::int64_t all = streams * width;
            StreamReadInput input;
            input.residual = random.floats(67 * all, -2, 2);
            input.block_out = random.floats(67 * width, -1, 1);
            input.block_inject = random.floats(67 * streams, 0, 2);
            const StreamReadResult want = stream_read_oracle(layer, rows_of(input.residual, all),
                                                             rows_of(input.block_out, width),
                                                             rows_of(input.block_inject, streams));
            const auto got = run_stream_read(backend, "prompt", layer, input);
            const std::string label = backend.name + ", D=" + std::to_string(width);
            expect_close(label, got.residual, want.residual, Tolerance::rounding());
            expect_close(label + ", x", got.x, want.x, Tolerance::rounded_inputs());
            expect_close(label + ", inject", got.inject, want.inject, Tolerance::rounded_inputs());
            const auto part = run_stream_read(
                backend, "part", layer,
                {slice(input.residual, 60, 5, all), slice(input.block_out, 60, 5, width),
                 slice(input.block_inject, 60, 5, streams)});
            expect_same_bits(label, part.x, slice(got.x, 60, 5, width));
            expect_same_bits(label, part.inject, slice(got.inject, 60, 5, streams));
        }
    });
}

void check_experts(TestBackend& backend, const ExpertsLayer& layer, Random& random,
                   std::int64_t rows) {
    const std::int64_t width = layer.router.cols;
    const auto x = random.floats(rows * width, -2, 2);
    const ExpertsResult want = experts_oracle(layer, rows_of(x, width));
    ASSERT_GT(want.margin, kRankingMargin);
    const auto got = run_experts(backend, "prompt", layer, x);
    expect_equal(backend.name, got.chosen, want.chosen);
    expect_close(backend.name + ", share", got.share, want.share, Tolerance::projection());
    expect_close(backend.name + ", y", got.y, want.y, Tolerance::rounded_inputs());
    const std::int64_t n = std::min<std::int64_t>(rows, 2);
    const auto part = run_experts(backend, "part", layer, slice(x, rows - n, n, width));
    expect_same_bits(backend.name, part.y, slice(got.y, rows - n, n, width));
}

TEST(Prompt, experts_match_the_oracle_and_themselves_in_every_chunk) {
    on_prompt_backends([](TestBackend& backend) {
        Random random("prompt experts");
        auto layer = random_experts(random, Types::mixed(), {.experts = 2, .active = 2});
        check_experts(backend, layer, random, 99);
        layer.renormalize = false;
        layer.active = 1;
        check_experts(backend, layer, random, 2);
        const auto same = random_experts(
            random, Types(quant::Type::q8_0),
            {.width = 96, .experts = 7, .hidden = 96, .shared_hidden = 32, .active = 2});
        check_experts(backend, same, random, 5);
        auto blocks = random_experts(random, Types(quant::Type::q8_0),
                                     {.width = 256, .experts = 3, .hidden = 64, .active = 1});
        for (std::size_t e = 0; e < 3; ++e) {
            blocks.gate[e] = random_weight(random, quant::Type::iq3_xxs, 64, 256);
            blocks.up[e] = random_weight(random, quant::Type::iq3_xxs, 64, 256);
            blocks.down[e] = random_weight(random, quant::Type::q2_0, 256, 64);
        }
        check_experts(backend, blocks, random, 5);
        const auto odd = random_experts(
            random, Types(quant::Type::f16),
            {.width = 33, .experts = 300, .hidden = 7, .shared_hidden = 19, .active = 2});
        check_experts(backend, odd, random, 1);
    });
}

TEST(Prompt, experts_of_every_type_match_the_oracle) {
    on_prompt_backends([](TestBackend& backend) {
        for (const quant::Type type : kBlockTypes) {
            Random random("prompt expert types", static_cast<std::uint64_t>(type));
            auto layer = random_experts(random, Types(quant::Type::q8_0),
                                        {.width = 64, .experts = 2, .hidden = 256, .active = 1});
            for (TestWeight& down : layer.down) down = random_blocks(random, type, 64, 256);
            SCOPED_TRACE(quant::info(type).name);
            check_experts(backend, layer, random, 1);
        }
    });
}

TEST(Prompt, sparse_attention_matches_the_oracle_and_itself_in_every_chunk) {
    // With blocks of four rows kernels share the keys of neighbouring rows.
    for (const auto& [ratio, kept, dim] : {std::array{4, 9, 128}, {5, 7, 64}}) {
        on_prompt_backends([&](TestBackend& backend) {
            Random random("prompt attention");
            const op::AttentionShape shape{.heads = 6,
                                           .kv_heads = 2,
                                           .head_dim = dim,
                                           .index_heads = 2,
                                           .index_dim = 8,
                                           .ratio = ratio,
                                           .blocks_kept = kept,
                                           .rotary_pairs = 3};
            const auto layer = random_attention(random, Types::mixed(), shape, 40);
            const auto x = random.floats(50 * 40, -2, 2);
            const AttentionExpected want = attention_expected(layer, rows_of(x, 40));
            for (const op::CacheType type : kCacheTypes) {
                const auto got = run_sequence(backend, "prompt", layer, type, x, {50});
                expect_sequence(backend.name, layer, want, got, Tolerance::rounded_inputs());
                if (type == op::CacheType::f32) continue;
                expect_same_output(
                    backend.name, run_sequence(backend, "parts", layer, type, x, {1, 17, 32}), got);
            }
        });
    }
}

TEST(Prompt, ngram_mix_and_mtp_fuse_match_their_oracles) {
    on_prompt_backends([](TestBackend& backend) {
        Random random("prompt ngram_mix");
        const auto layer = random_ngram_mix(random, Types::mixed(), {});
        const std::int64_t channels = layer.channels();
        NgramMixInput input;
        input.e = random.floats(19 * layer.key.cols, -2, 2);
        input.residual = random.floats(19 * channels, -2, 2);
        input.history = random.floats(layer.history_rows() * channels, -2, 2);
        const NgramMixResult mixed = ngram_mix_oracle(layer, rows_of(input.e, layer.key.cols),
                                                      rows_of(input.residual, channels),
                                                      rows_of(input.history, channels), {}, {});
        const auto got = run_ngram_mix(backend, "prompt", layer, input);
        expect_close(backend.name, got.residual, mixed.residual, Tolerance::rounded_inputs());

        const auto fuse = random_mtp_fuse(random, Types::mixed(), 2, 48, 9);
        const auto residual = random.floats(3 * 96, -2, 2);
        expect_close(
            backend.name, run_mtp_fuse(backend, "prompt", fuse, {1, 8, 3}, residual, false),
            mtp_fuse_oracle(fuse, {1, 8, 3}, rows_of(residual, 96)), Tolerance::rounded_inputs());
    });
}

}  // namespace
}  // namespace strata::test
