// op/experts.h on every backend in the build, against a float64 oracle.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "op/experts.h"
#include "tests/op/run/experts.h"
#include "tests/support/everywhere.h"

namespace strata::test {
namespace {

void expect_oracle(const std::string& label, const ExpertsLayer& layer,
                   const std::vector<float>& x) {
    const ExpertsResult want = experts_oracle(layer, rows_of(x, layer.router.cols));
    ASSERT_GT(want.margin, kRankingMargin) << label << ": this case has a near tie";
    on_backends(
        label, [&](TestBackend& b) { return run_experts(b, label, layer, x); },
        [&](const ExpertsOutput& got) {
            expect_equal(label + ", chosen", got.chosen, want.chosen);
            expect_close(label + ", share", got.share, want.share, Tolerance::projection());
            expect_close(label + ", y", got.y, want.y, Tolerance::projection());
        });
}

TEST(Experts, match_the_oracle_for_every_number_of_rows) {
    Random random("experts rows");
    const auto layer = random_experts(random, Types::mixed(), {});
    for (const std::int64_t rows : kRowCounts) {
        expect_oracle("T=" + std::to_string(rows), layer, random.floats(rows * 64, -2, 2));
    }
}

TEST(Experts, match_the_oracle_in_every_weight_type) {
    for (const quant::Type type : kWeightTypes) {
        Random random("experts types", static_cast<std::uint64_t>(type));
        const auto layer = random_experts(
            random, Types(type),
            {.width = 96, .experts = 8, .hidden = 64, .shared_hidden = 32, .active = 3});
        expect_oracle(std::string(quant::info(type).name), layer, random.floats(5 * 96, -2, 2));
    }
}

TEST(Experts, match_the_oracle_in_odd_shapes) {
    Random random("experts shapes");
    const ExpertsSizes shapes[] = {
        {.width = 33, .experts = 5, .hidden = 7, .shared_hidden = 19, .active = 2},
        {.width = 1, .experts = 3, .hidden = 1, .shared_hidden = 1, .active = 1},
        {.width = 20, .experts = 100, .hidden = 3, .shared_hidden = 50, .active = 10}};
    for (const ExpertsSizes& sizes : shapes) {
        for (const quant::Type type : {quant::Type::f32, quant::Type::f16, quant::Type::bf16}) {
            const auto layer = random_experts(random, Types(type), sizes);
            expect_oracle("E=" + std::to_string(sizes.experts), layer,
                          random.floats(3 * sizes.width, -2, 2));
        }
    }
}

TEST(Experts, k_may_be_one_and_may_be_every_expert) {
    Random random("experts k");
    for (const auto& [experts, active] : {std::pair{1, 1}, {16, 1}, {16, 15}, {16, 16}, {3, 3}}) {
        const auto layer =
            random_experts(random, Types::mixed(), {.experts = experts, .active = active});
        expect_oracle("E=" + std::to_string(experts) + " k=" + std::to_string(active), layer,
                      random.floats(3 * 64, -2, 2));
    }
}

TEST(Experts, work_at_the_limits_of_the_contract) {
    Random random("experts limits");
    const auto layer = random_experts(random, Types(quant::Type::f32),
                                      {.width = 3,
                                       .experts = op::kExpertsMax,
                                       .hidden = 2,
                                       .shared_hidden = 2,
                                       .active = op::kExpertsActiveMax});
    // So many experts lie close together; a row whose choice is clear is looked for.
    std::vector<float> x;
    do {
        x = random.floats(3, -20, 20);
    } while (experts_oracle(layer, rows_of(x, 3)).margin < 2 * kRankingMargin);
    expect_oracle("E and k at their largest", layer, x);
}

TEST(Experts, without_renormalization_shares_are_the_probabilities) {
    Random random("experts plain shares");
    auto layer = random_experts(random, Types::mixed(), {});
    layer.renormalize = false;
    expect_oracle("renormalize false", layer, random.floats(5 * 64, -2, 2));
    layer.active = 1;
    expect_oracle("renormalize false, k=1", layer, random.floats(5 * 64, -2, 2));
}

TEST(Experts, equal_logits_go_to_the_lower_expert) {
    Random random("experts ties");
    auto layer = random_experts(random, Types(quant::Type::f32), {.width = 8, .experts = 40});
    const auto x = random.floats(8, 0.5, 1);
    const auto choose = [&](const std::vector<float>& level, std::vector<std::int32_t> want) {
        // Every router row is a multiple of one row, exactly equal for equal levels.
        std::vector<float> router;
        for (const float l : level) router.insert(router.end(), 8, l);
        layer.router = make_weight(quant::Type::f32, 40, 8, router);
        for (TestBackend& backend : backends()) {
            const auto got = run_experts(backend, "ties", layer, x);
            expect_equal(backend.name, got.chosen, want);
            const ExpertsResult oracle = experts_oracle(layer, rows_of(x, 8));
            expect_close(backend.name + ", y", got.y, oracle.y, Tolerance::projection());
        }
    };
    std::vector<float> level(40, 0.25f);
    choose(level, {0, 1, 2, 3});
    level[39] = level[17] = level[33] = 0.5f;
    choose(level, {17, 33, 39, 0});
    level[20] = level[5] = 1.0f;
    choose(level, {5, 20, 17, 33});
    for (std::size_t e = 0; e < 40; ++e) level[e] = e % 2 == 0 ? -0.0f : 0.0f;
    choose(level, {0, 1, 2, 3});
}

// NUM-05. Logits are the row itself, halves of odd numbers of which some are one step of F32 away.
TEST(Experts, among_ties_and_near_ties_every_route_chooses_as_a_sort_does) {
    constexpr std::int64_t kExperts = 24;
    constexpr std::int64_t kActive = 4;
    Random random("experts near ties");
    auto layer = random_experts(random, Types(quant::Type::f32),
                                {.width = kExperts, .experts = kExperts, .active = kActive});
    std::vector<float> identity(kExperts * kExperts);
    for (std::size_t e = 0; e < kExperts; ++e) identity[e * kExperts + e] = 1;
    layer.router = make_weight(quant::Type::f32, kExperts, kExperts, identity);
    std::vector<float> x;
    std::vector<std::int32_t> want;
    for (int t = 0; t < 160; ++t) {
        for (int e = 0; e < kExperts; ++e) {
            const std::uint64_t bits = random.bits();
            const auto logit = static_cast<float>(bits % 8) - 3.5f;
            x.push_back((bits >> 32) % 4 == 0 ? std::nextafter(logit, 10.0f) : logit);
        }
        const float* logits = x.data() + x.size() - kExperts;
        std::vector<std::int32_t> order(kExperts);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
        want.insert(want.end(), order.begin(), order.begin() + kActive);
    }
    for (TestBackend& backend : backends()) {
        std::vector<std::int32_t> got;
        for (std::int64_t t = 0; t < 160; t += 16) {
            append(got, run_experts(backend, "near ties", layer, slice(x, t, 16, kExperts)).chosen);
        }
        expect_equal(backend.name, got, want);
        if (backend.backend.ops.prompts == nullptr) continue;
        const PromptRoute route;
        expect_equal(backend.name + ", prompts", run_experts(backend, "near ties", layer, x).chosen,
                     want);
    }
}

TEST(Experts, a_huge_spread_of_logits_underflows_to_zero_shares) {
    Random random("experts spread");
    auto layer = random_experts(random, Types(quant::Type::f32), {.experts = 4, .active = 3});
    layer.router = zero_weight(4, 64);
    for (const auto& [row, value] : {std::pair{0, 300.0f}, {1, -300.0f}, {2, 0.0f}, {3, 100.0f}}) {
        layer.router.values[row * 64] = value;
    }
    layer.router = make_weight(quant::Type::f32, 4, 64, layer.router.values);
    expect_oracle("spread", layer, std::vector<float>(64, 1.0f));
}

TEST(Experts, with_nan_logits_the_chosen_stay_different_and_in_range) {
    Random random("experts nan");
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const int active : {1, 4, 16}) {
        auto layer = random_experts(random, Types(quant::Type::f32), {.active = active});
        std::vector<float> x = random.floats(3 * 64, -2, 2);
        x[64 + 7] = nan;
        // Expert 3 has a NaN logit in every row; row 1 has nothing else.
        layer.router.values[3 * 64 + 5] = nan;
        layer.router = make_weight(quant::Type::f32, 16, 64, layer.router.values);
        for (TestBackend& backend : backends()) {
            const auto got = run_experts(backend, "nan", layer, x);
            for (int t = 0; t < 3; ++t) {
                std::set<std::int32_t> different;
                for (int j = 0; j < active; ++j) different.insert(got.chosen[t * active + j]);
                EXPECT_EQ(different.size(), static_cast<std::size_t>(active)) << backend.name;
                EXPECT_GE(*different.begin(), 0) << backend.name;
                EXPECT_LT(*different.rbegin(), 16) << backend.name;
            }
        }
    }
}

void expect_rows_alone(Random& random, const ExpertsLayer& layer,
                       std::span<const std::int64_t> counts) {
    const std::int64_t width = layer.router.cols;
    for (const std::int64_t rows : counts) {
        const auto x = random.floats(rows * width, -2, 2);
        for (TestBackend& backend : backends()) {
            ExpertsOutput alone;
            for (std::int64_t t = 0; t < rows; ++t) {
                const auto row = run_experts(backend, "alone", layer, slice(x, t, 1, width));
                append(alone.y, row.y);
                append(alone.chosen, row.chosen);
                append(alone.share, row.share);
            }
            expect_same_output(backend.name + ", T=" + std::to_string(rows),
                               run_experts(backend, "together", layer, x), alone);
        }
    }
}

TEST(Experts, each_row_is_bit_identical_to_that_row_alone) {
    Random random("experts alone");
    expect_rows_alone(random, random_experts(random, Types::mixed(), {}), kRowCounts);
}

TEST(Experts, wide_rows_are_the_same_on_any_number_of_threads) {
    Random random("experts wide");
    const auto layer = random_experts(
        random, Types::mixed(),
        {.width = 256, .experts = 20, .hidden = 96, .shared_hidden = 128, .active = 4});
    expect_oracle("wide", layer, random.floats(256, -2, 2));
    expect_oracle("wide, T=33", layer, random.floats(33 * 256, -2, 2));
    expect_rows_alone(random, layer, kWideRowCounts);
}

// Formats and shapes that have kernels of their own.
TEST(Experts, of_three_and_two_bits_match_the_oracle_and_rows_alone) {
    Random random("experts of few bits");
    const ExpertsSizes sizes{
        .width = 1024, .experts = 4, .hidden = 128, .shared_hidden = 64, .active = 2};
    auto layer = random_experts(random, Types(quant::Type::q8_0), sizes);
    for (std::size_t e = 0; e < layer.gate.size(); ++e) {
        layer.gate[e] = random_weight(random, quant::Type::iq3_xxs, sizes.hidden, sizes.width);
        layer.up[e] = random_weight(random, quant::Type::iq3_xxs, sizes.hidden, sizes.width);
        layer.down[e] = random_weight(random, quant::Type::q2_0, sizes.width, sizes.hidden);
    }
    layer.router = random_weight(random, quant::Type::f32, sizes.experts, sizes.width);
    expect_oracle("T=3", layer, random.floats(3 * sizes.width, -2, 2));
    constexpr std::int64_t kCounts[] = {3};
    expect_rows_alone(random, layer, kCounts);
}

TEST(Experts, y_is_the_same_without_chosen_and_share) {
    Random random("experts no report");
    const auto layer = random_experts(random, Types::mixed(), {});
    const auto x = random.floats(5 * 64, -2, 2);
    for (TestBackend& backend : backends()) {
        expect_same_bits(backend.name, run_experts(backend, "without", layer, x, false).y,
                         run_experts(backend, "with", layer, x, true).y);
    }
}

}  // namespace
}  // namespace strata::test
