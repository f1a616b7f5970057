// Sampling: each filter keeps exactly what it names, and draws follow the distribution and the
// seed.

#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/philox.h"
#include "engine/answer_rule.h"
#include "synth/synth.h"
#include "tests/support/random.h"

namespace strata::test {
namespace {

using Logits = std::vector<float>;

std::int32_t pick(const Sampling& sampling, const Logits& logits, std::int64_t position = 0,
                  const std::vector<std::int32_t>& before = {}) {
    const auto token = Sampler(sampling).pick(logits, before, position);
    EXPECT_TRUE(token.ok());
    return token.ok() ? *token : -1;
}

// Every token that some position draws; the rarest one wanted has a chance above 1 %.
std::set<std::int32_t> drawn(const Sampling& sampling, const Logits& logits) {
    std::set<std::int32_t> tokens;
    for (std::int64_t position = 0; position < 2000; ++position) {
        tokens.insert(pick(sampling, logits, position));
    }
    return tokens;
}

TEST(Philox, the_papers_known_answers) {
    EXPECT_EQ(philox(0, {0, 0, 0, 0}),
              (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(philox(~std::uint64_t{0}, {~0u, ~0u, ~0u, ~0u}),
              (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(philox(0x299f31d0a4093822u, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
              (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Sampler, temperature_zero_takes_the_largest_and_of_equal_ones_the_lower_id) {
    EXPECT_EQ(pick({}, {1, 5, 3}), 1);
    EXPECT_EQ(pick({}, {2, 7, 7, 7}), 1);
    EXPECT_EQ(pick({}, {-3, -3}), 0);
    const float low = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(pick({}, {low, -2, low}), 1);
}

// SAMP-05
TEST(Sampler, extreme_temperatures_do_not_overflow) {
    const Logits logits = {3e38f, -3e38f, 2.9e38f, 0};
    for (const double temperature : {0.0, 1e-300, 1e-8, 1e-3, 1.0, 2.0, 1e6}) {
        EXPECT_EQ(pick({.temperature = temperature}, logits), 0) << temperature;
        const auto few = drawn({.temperature = temperature}, {1, 2, 3});
        EXPECT_EQ(few.size(), temperature < 1 ? 1u : 3u) << temperature;
    }
}

TEST(Sampler, top_k_keeps_k_and_of_equal_ones_the_lower_ids) {
    EXPECT_EQ(drawn({.temperature = 1, .top_k = 2}, {1, 1.2f, 1.1f, 0.9f}),
              (std::set<std::int32_t>{1, 2}));
    EXPECT_EQ(drawn({.temperature = 1, .top_k = 2}, {1, 1, 1, 1}), (std::set<std::int32_t>{0, 1}));
    EXPECT_EQ(drawn({.temperature = 1, .top_k = 9}, {1, 1, 1}).size(), 3u);
}

TEST(Sampler, top_p_keeps_the_smallest_set_that_reaches_it) {
    // Probabilities 0.5, 0.3, 0.15, 0.05.
    const Logits logits = {std::log(0.15f), std::log(0.5f), std::log(0.05f), std::log(0.3f)};
    EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.49}, logits), (std::set<std::int32_t>{1}));
    EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.51}, logits), (std::set<std::int32_t>{1, 3}));
    EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.81}, logits), (std::set<std::int32_t>{0, 1, 3}));
    EXPECT_EQ(drawn({.temperature = 1, .top_p = 0}, logits), (std::set<std::int32_t>{1}));
}

TEST(Sampler, min_p_keeps_what_is_near_the_largest) {
    const Logits logits = {std::log(0.15f), std::log(0.5f), std::log(0.05f), std::log(0.3f)};
    EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.7}, logits), (std::set<std::int32_t>{1}));
    EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.5}, logits), (std::set<std::int32_t>{1, 3}));
    EXPECT_EQ(drawn({.temperature = 1, .min_p = 1}, logits), (std::set<std::int32_t>{1}));
}

TEST(Sampler, filters_see_the_distribution_at_the_temperature) {
    // At temperature 2 the probabilities 0.8 and 0.2 become 2/3 and 1/3.
    const Logits logits = {std::log(0.8f), std::log(0.2f)};
    EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.7}, logits).size(), 1u);
    EXPECT_EQ(drawn({.temperature = 2, .top_p = 0.7}, logits).size(), 2u);
}

TEST(Sampler, draws_follow_the_distribution) {
    const std::vector<double> wanted = {0.5, 0.25, 0.15, 0.07, 0.03};
    Logits logits;
    for (const double p : wanted) logits.push_back(static_cast<float>(std::log(p)));
    constexpr int kDraws = 100'000;
    std::map<std::int32_t, int> counts;
    for (int i = 0; i < kDraws; ++i) ++counts[pick({.temperature = 1, .seed = 11}, logits, i)];
    double chi_square = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const double expected = wanted[i] * kDraws;
        const double difference = counts[static_cast<std::int32_t>(i)] - expected;
        chi_square += difference * difference / expected;
    }
    // Four degrees of freedom: 18.5 has a chance of 0.1 %.
    EXPECT_LT(chi_square, 18.5);
}

TEST(Sampler, a_draw_depends_on_seed_and_position_alone) {
    const Logits logits(50, 0);
    std::set<std::int32_t> by_seed;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        by_seed.insert(pick({.temperature = 1, .seed = seed}, logits, 5));
    }
    EXPECT_GT(by_seed.size(), 5u);
    Sampler sampler({.temperature = 1, .seed = 3});
    const auto first = sampler.pick(logits, {}, 17);
    for (int i = 0; i < 9; ++i) ASSERT_TRUE(sampler.pick(logits, {}, i).ok());
    EXPECT_EQ(*sampler.pick(logits, {}, 17), *first);
}

TEST(Sampler, penalties_follow_their_formulas) {
    const std::vector<std::int32_t> before = {0, 0, 0, 1};
    // 4 / 2 and 3 / 2 are below 2.2; a negative logit moves away from zero.
    EXPECT_EQ(pick({.repeat_penalty = 2}, {4, 3, 2.2f}, 4, before), 2);
    EXPECT_EQ(pick({.repeat_penalty = 2}, {-1, -9, -1.9f}, 4, before), 2);
    EXPECT_EQ(pick({.presence_penalty = 1}, {3, 2.9f, 1.95f}, 4, before), 0);
    EXPECT_EQ(pick({.presence_penalty = 1.2}, {3, 2.9f, 1.95f}, 4, before), 2);
    // Three times 0.5 off the first, once off the second.
    EXPECT_EQ(pick({.frequency_penalty = 0.5}, {3, 2.4f, 1.8f}, 4, before), 1);
    EXPECT_EQ(pick({.frequency_penalty = 0.5, .penalty_window = 1}, {3, 2.4f, 1.8f}, 4, before), 0);
    EXPECT_EQ(pick({.frequency_penalty = 0.5, .penalty_window = 0}, {3, 2.4f, 1.8f}, 4, before), 0);
    EXPECT_EQ(pick({.frequency_penalty = 0.5, .penalty_window = -1}, {3, 2.4f, 1.8f}, 4, before),
              1);
}

TEST(Sampler, logits_that_are_no_numbers_are_errors) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float low = -std::numeric_limits<float>::infinity();
    Sampler sampler({});
    EXPECT_FALSE(sampler.pick(Logits{1, nan, 2}, {}, 0).ok());
    EXPECT_FALSE(sampler.pick(Logits{low, low}, {}, 0).ok());
    EXPECT_FALSE(sampler.pick(Logits{}, {}, 0).ok());
}

// SAMP-05: temperatures below zero and those that are no number.
TEST(Sampler, settings_out_of_range_are_errors) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(check(Sampling{}).ok());
    EXPECT_FALSE(check(Sampling{.temperature = -1}).ok());
    EXPECT_FALSE(check(Sampling{.temperature = nan}).ok());
    EXPECT_FALSE(check(Sampling{.top_k = -1}).ok());
    EXPECT_FALSE(check(Sampling{.top_p = 1.1}).ok());
    EXPECT_FALSE(check(Sampling{.top_p = nan}).ok());
    EXPECT_FALSE(check(Sampling{.min_p = -0.1}).ok());
    EXPECT_FALSE(check(Sampling{.repeat_penalty = 0}).ok());
    EXPECT_FALSE(check(Sampling{.presence_penalty = nan}).ok());
    EXPECT_FALSE(check(Sampling{.penalty_window = -2}).ok());
    EXPECT_EQ(check(Sampling{.top_p = 1.0000001}).error().message,
              "the top-p is 1.0000001, wanted 0 to 1");
    EXPECT_TRUE(check(Sampling{.repeat_penalty = 1e-6F}).ok());
}

TEST(Sampler, a_draft_draws_among_some_tokens_as_the_target_among_all) {
    Random random("among");
    const std::vector<float> logits = random.floats(50, -3, 3);
    const std::vector<std::int32_t> before = {3, 3, 9};
    const std::vector<Sampling> samplings = {
        {.temperature = 1},
        {.repeat_penalty = 2, .presence_penalty = 1},
        {.temperature = 0.7, .top_k = 9, .top_p = 0.9, .min_p = 0.02, .frequency_penalty = 1}};
    for (Sampling sampling : samplings) {
        for (sampling.seed = 0; sampling.seed < 20; ++sampling.seed) {
            Sampler sampler(sampling);
            const std::int32_t want = sampler.pick(logits, before, 3).value();
            EXPECT_EQ(sampler.draw(logits, before).value(), want);
            // All tokens, in another order.
            std::vector<std::int32_t> tokens(50);
            std::iota(tokens.begin(), tokens.end(), 0);
            random.shuffle(tokens);
            std::vector<float> theirs;
            for (const std::int32_t t : tokens)
                theirs.push_back(logits[static_cast<std::size_t>(t)]);
            EXPECT_EQ(sampler.draw_among(tokens, theirs, before).value(), want);
            // Fewer: the one drawn is among them, and of those left out none would have been.
            const std::vector<std::int32_t> pair = {want, (want + 1) % 50};
            const std::vector<float> two = {logits[static_cast<std::size_t>(pair[0])],
                                            logits[static_cast<std::size_t>(pair[1])]};
            if (sampling.top_k == 0) {
                EXPECT_EQ(sampler.draw_among(pair, two, before).value(), want);
            }
        }
    }
}

// What a device says of the rows of a window: op::Draw by its formula, with scores that are off.
std::vector<op::Drawn> drawn_of(const model::Draws& draws, const Logits& logits, std::int64_t t,
                                Random& random) {
    struct Scored {
        double score;
        op::Drawn drawn;
    };
    std::map<std::int32_t, std::int32_t> counts;
    for (const op::Penalized& one : draws.penalized) counts[one.token] = one.count;
    for (std::int64_t i = 0; i < t; ++i) {
        if (draws.rule.joins[i] >= 0) ++counts.at(draws.rule.joins[i]);
        if (draws.rule.leaves[i] >= 0) --counts[draws.rule.leaves[i]];
    }
    std::vector<Scored> all;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const auto token = static_cast<std::int32_t>(i);
        const std::int32_t count = std::max(counts[token], 0);
        const double logit =
            count > 0 ? op::penalized_logit(draws.rule, logits[i], count) : logits[i];
        all.push_back({logit, {token, count, logits[i], 0, 1}});
    }
    const auto lower = [](const Scored& a, const Scored& b) { return a.score < b.score; };
    const Scored largest = *std::max_element(all.begin(), all.end(), lower);
    std::vector<op::Drawn> drawn(1 + op::kDrawnMax);
    drawn[0] = largest.drawn;
    if (draws.rule.temperature == 0) return drawn;
    for (Scored& one : all) one.score = (one.score - largest.score) / draws.rule.temperature;
    std::stable_sort(all.begin(), all.end(),
                     [](const Scored& a, const Scored& b) { return a.score > b.score; });
    const auto top_k = static_cast<std::size_t>(draws.rule.top_k);
    if (top_k > 0) all.resize(std::min(all.size(), top_k));
    double sum = 0;
    for (const Scored& one : all) sum += std::exp(one.score);
    double before = 0;
    // One that top-p does not keep is listed too, as it may be.
    for (std::size_t i = 0; i < all.size() && draws.rule.top_p < 1; ++i) {
        all[i].drawn.sure = i == 0 || before < draws.rule.top_p;
        before += std::exp(all[i].score) / sum;
        if (all[i].drawn.sure == 0) all.resize(i + 1);
    }
    std::erase_if(all, [&](const Scored& one) { return one.score < draws.rule.lowest; });
    for (Scored& one : all) {
        one.score += gumbel(draws.rule.seed, static_cast<std::uint64_t>(draws.rule.position + t),
                            static_cast<std::uint32_t>(one.drawn.token));
        one.score += static_cast<double>(random.integer(-9, 9)) / 10 * op::score_error(one.score);
        one.drawn.score = static_cast<float>(one.score);
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Scored& a, const Scored& b) { return a.score > b.score; });
    for (std::size_t i = 0; i < std::min(all.size(), drawn.size() - 1); ++i) {
        drawn[1 + i] = all[i].drawn;
    }
    return drawn;
}

// Row after row of a window, each with the text that it has before it; and where not all of the
// tokens may follow.
TEST(Sampler, from_a_devices_draws_takes_what_it_takes_from_all) {
    const std::vector<Sampling> samplings = {
        {.temperature = 1, .seed = 1},
        {.temperature = 1e-6, .seed = 2},
        {.temperature = 1.5, .min_p = 0.1, .seed = 3},
        {.temperature = 0.8, .repeat_penalty = 1.2, .penalty_window = 2, .seed = 4},
        {.temperature = 1, .presence_penalty = -2, .penalty_window = -1, .seed = 5},
        {.repeat_penalty = 0.8, .frequency_penalty = 0.5, .penalty_window = 20},
        {.temperature = 2, .top_k = 64, .seed = 6},
        {.temperature = 0.7, .top_k = 20, .top_p = 0.8, .seed = 10},
        {.temperature = 1, .top_p = 0.9, .seed = 7},
        {.temperature = 1, .top_k = 9, .top_p = 0.6, .min_p = 0.2, .presence_penalty = 1},
    };
    const Tokenizer tokenizer = Tokenizer::create(synth::byte_vocabulary(300)).value();
    grammar::TokenSets texts = text_tokens(tokenizer, {});
    AnswerRule in_string(texts, {}, std::nullopt);
    for (const char byte : {'{', '"'}) EXPECT_TRUE(in_string.take(byte));
    Random random("draws");
    for (std::size_t s = 0; s < samplings.size(); ++s) {
        Sampler sampler(samplings[s]);
        int told = 0;
        int told_some = 0;
        for (int n = 0; n < 25; ++n) {
            const auto width = n % 4 == 3 ? 5 : 300;
            const auto some = [&] {
                return static_cast<std::int32_t>(random.integer(0, width - 1));
            };
            std::vector<std::int32_t> text;
            for (int i = 0; i < 1 + n; ++i) text.push_back(some());
            const std::vector<std::int32_t> window = {text.back(), some(), some(), some(), some()};
            model::StepRequest request;
            sampler.ask(text, window, request);
            ASSERT_EQ(request.picks, model::Picks::draw) << s;
            for (std::int64_t t = 0; t < std::ssize(window); ++t) {
                Logits logits = random.floats(width, -3, 4);
                if (n % 5 == 0) {
                    for (float& logit : logits) logit = std::round(logit);
                }
                // Far above the others, and no part of a string.
                if (n % 3 == 0 && width == 300) logits['\n'] = 7;
                if (t > 0) text.push_back(window[static_cast<std::size_t>(t)]);
                const auto drawn = drawn_of(*request.draws, logits, t, random);
                const std::int64_t position = std::ssize(text);
                const model::RowPick picked{{drawn[0].token, 1}, drawn};
                if (const auto some_of = sampler.pick_of(picked, position, &in_string)) {
                    ++told_some;
                    EXPECT_EQ(*some_of, sampler.pick(logits, text, position, &in_string).value());
                }
                const auto got = sampler.pick_of(picked, position);
                if (!got) continue;
                ++told;
                EXPECT_EQ(*got, pick(samplings[s], logits, position, text)) << s << ' ' << n;
            }
        }
        EXPECT_GE(told, samplings[s].top_p < 1 ? 90 : 124) << s;
        const bool filters = samplings[s].top_k > 0 || samplings[s].top_p < 1;
        EXPECT_TRUE(filters ? told_some == 0 : told_some > 3) << s << ' ' << told_some;
    }
}

TEST(Sampler, an_end_token_that_a_device_picked_while_the_model_thinks_is_none) {
    constexpr std::int32_t kEnd = 2;
    constexpr std::int32_t kThought = 3;
    const std::vector<std::int32_t> ends = {kEnd};
    grammar::TokenSets texts({"a", "b", "", ""});
    const AnswerRule rule(texts, ends, kThought);
    Sampler greedy({});
    EXPECT_EQ(greedy.pick_of({{kEnd, 1}, {}}, 5, &rule), std::nullopt);
    EXPECT_EQ(greedy.pick_of({{kThought, 1}, {}}, 5, &rule), kThought);
    EXPECT_EQ(greedy.pick_of({{1, 1}, {}}, 5, &rule), 1);
    Sampler drawn({.temperature = 1, .top_k = 2, .seed = 4});
    model::StepRequest request;
    const std::vector<std::int32_t> text = {1, 1};
    drawn.ask(text, std::span(text).last(1), request);
    ASSERT_EQ(request.picks, model::Picks::draw);
    Random random("thinking", 1);
    int told = 0;
    for (int i = 0; i < 200; ++i) {
        const Logits logits = random.floats(4, -1, 1);
        const auto candidates = drawn_of(*request.draws, logits, 0, random);
        const auto all = drawn.pick_of({{candidates[0].token, 1}, candidates}, 2);
        const auto held = drawn.pick_of({{candidates[0].token, 1}, candidates}, 2, &rule);
        if (!all) continue;
        ++told;
        EXPECT_EQ(held, *all == kEnd ? std::nullopt : all);
    }
    EXPECT_GT(told, 50);
}

TEST(Sampler, takes_the_largest_that_a_device_picked) {
    Sampler sampler({});
    model::StepRequest request;
    const std::vector<std::int32_t> text = {1, 2};
    sampler.ask(text, std::span(text).last(1), request);
    EXPECT_EQ(request.picks, model::Picks::largest);
    EXPECT_EQ(sampler.draws(text), nullptr);
    EXPECT_EQ(sampler.pick_of({{17, 1}, {}}, 2), 17);
}

TEST(Sampler, penalties_of_more_tokens_than_a_device_holds_want_all_logits) {
    Sampler sampler({.temperature = 1, .presence_penalty = -1, .penalty_window = -1, .seed = 1});
    std::vector<std::int32_t> text(op::kPenalizedMax);
    std::iota(text.begin(), text.end(), 0);
    model::StepRequest request;
    sampler.ask(text, std::span(text).last(1), request);
    EXPECT_EQ(request.picks, model::Picks::draw);
    text.push_back(op::kPenalizedMax);
    sampler.ask(text, std::span(text).last(1), request);
    EXPECT_EQ(request.picks, model::Picks::none);
}

}  // namespace
}  // namespace strata::test
