// The choice of `auto` against machines and texts that are made up: no clock is read.

#include "spec/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/support/random.h"

namespace strata::test {
namespace {

using spec::Policy;

struct MadeUpDrafter {
    double guess_ms = 0;    // the first guess
    double further_ms = 0;  // each further one
    double share = 0;       // of guesses that are right
    bool block = false;
};

// A target, its drafters and a text.
struct MadeUp {
    double row_ms = 10;
    double further_row_ms = 3;
    double noise = 0;  // of every time, as a share of it
    std::vector<MadeUpDrafter> drafters;
    double match_share = 0;   // of windows that begin with a match, which come one after another
    double suffix_share = 0;  // of its guesses that are right

    double verify(std::int64_t rows) const {
        return row_ms + further_row_ms * static_cast<double>(rows - 1);
    }
    double draft(std::size_t d, std::int64_t n) const {
        const MadeUpDrafter& one = drafters[d];
        return n == 0 ? 0 : one.guess_ms + one.further_ms * static_cast<double>(n - 1);
    }
    // Tokens a millisecond of `count` guesses in every window.
    double fixed(std::size_t d, std::int64_t count) const {
        double tokens = 1;
        for (std::int64_t i = 1; i <= count; ++i) {
            tokens += std::pow(drafters[d].share, static_cast<double>(i));
        }
        return tokens / (draft(d, count) + verify(count + 1));
    }
    double best_fixed() const {
        double best = 1 / verify(1);
        for (std::size_t d = 0; d < drafters.size(); ++d) {
            for (std::int64_t n = 1; n <= kCountMax; ++n) best = std::max(best, fixed(d, n));
        }
        return best;
    }
    static constexpr std::int64_t kCountMax = 7;
};

class Player {
  public:
    explicit Player(const MadeUp& world) : world_(world), random_("policy") {
        for (const MadeUpDrafter& d : world.drafters) {
            priors_.push_back({.cost = 0.25,
                               .slope = d.block ? 0.1 : 1,
                               .share = 0.6,
                               .count_max = MadeUp::kCountMax,
                               .block = d.block});
        }
        policy_ = std::make_unique<Policy>(priors_);
    }

    void change(const MadeUp& world) { world_ = world; }

    // Tokens a millisecond over so many windows.
    double play(int windows) {
        double tokens = 0;
        double ms = 0;
        for (int w = 0; w < windows; ++w) {
            const spec::Verified window = play_one();
            tokens += 1 + static_cast<double>(window.accepted);
            ms += window.draft_ms + window.verify_ms;
        }
        return tokens / ms;
    }

  private:
    bool chance(double p) { return random_.uniform(0, 1) < p; }
    double timed(double ms) { return ms * (1 + world_.noise * random_.uniform(-1, 1)); }

    spec::Verified play_one() {
        constexpr std::int64_t kRun = 60;  // tokens
        const double at = static_cast<double>(tokens_ % kRun) / kRun;
        static constexpr std::array<spec::Evidence, MadeUp::kCountMax> kEvidence = {
            spec::Evidence::once_6,  spec::Evidence::once_6,  spec::Evidence::once_10,
            spec::Evidence::once_10, spec::Evidence::once_10, spec::Evidence::once_10,
            spec::Evidence::once_10};
        const bool match = at < world_.match_share;
        const auto evidence =
            match ? std::span<const spec::Evidence>(kEvidence) : std::span<const spec::Evidence>();
        std::int64_t suffix_right = 0;
        while (suffix_right < MadeUp::kCountMax && chance(world_.suffix_share)) ++suffix_right;
        const Policy::Choice choice = policy_->choose({MadeUp::kCountMax, evidence});
        spec::Verified window{.rows = 1};
        std::int64_t computed = 0;
        std::vector<float> confidence;
        if (choice.who == Policy::kSuffix) {
            window.rows = choice.count + 1;
            window.accepted = std::min(choice.count, suffix_right);
        } else if (choice.who >= 0) {
            const auto d = static_cast<std::size_t>(choice.who);
            const MadeUpDrafter& drafter = world_.drafters[d];
            const auto share = static_cast<float>(drafter.share);
            computed = 0;
            while (computed < choice.count) {
                ++computed;
                confidence.push_back(share);
                if (!drafter.block && !policy_->go_on(confidence, {})) break;
            }
            confidence.resize(static_cast<std::size_t>(policy_->worth(confidence)));
            window.rows = static_cast<std::int64_t>(confidence.size()) + 1;
            while (window.accepted + 1 < window.rows && chance(drafter.share)) ++window.accepted;
            window.draft_ms = timed(world_.draft(d, computed));
        }
        window.verify_ms = timed(world_.verify(window.rows));
        policy_->learn(computed, confidence, window);
        tokens_ += window.accepted + 1;
        // Tokens that have come are all that a guess can be judged by.
        if (match) {
            const std::int64_t come = window.accepted + 1;
            const std::int64_t right = std::min(suffix_right, come);
            policy_->learn_suffix(evidence, right, right < come);
        }
        return window;
    }

    MadeUp world_;
    std::int64_t tokens_ = 0;
    Random random_;
    std::vector<spec::NeuralPrior> priors_;
    std::unique_ptr<Policy> policy_;
};

const MadeUpDrafter kGoodChain{.guess_ms = 1, .further_ms = 1, .share = 0.85};
const MadeUpDrafter kBadChain{.guess_ms = 2, .further_ms = 2, .share = 0.1};
const MadeUpDrafter kGoodBlock{.guess_ms = 3, .further_ms = 0.1, .share = 0.85, .block = true};
const MadeUpDrafter kBadBlock{.guess_ms = 3, .further_ms = 0.1, .share = 0.1, .block = true};

TEST(Policy, comes_to_the_best_of_the_drafters_and_lengths_that_there_are) {
    for (const double further_row : {0.3, 2.0, 5.0}) {
        for (const auto& drafters :
             {std::vector{kGoodChain, kBadBlock}, std::vector{kBadChain, kGoodBlock},
              std::vector{kGoodChain, kGoodBlock}}) {
            for (const double noise : {0.0, 0.2}) {
                MadeUp world;
                world.further_row_ms = further_row;
                world.drafters = drafters;
                world.noise = noise;
                Player player(world);
                player.play(100);
                EXPECT_GT(player.play(8000), 0.95 * world.best_fixed())
                    << further_row << ' ' << noise;
            }
        }
    }
}

// SPEC-19
TEST(Policy, stays_near_plain_decoding_where_nothing_pays) {
    for (const double noise : {0.0, 0.2}) {
        MadeUp world;
        world.drafters = {kBadChain, kBadBlock};
        world.noise = noise;
        // Guesses from the text are as bad, and there are many.
        world.match_share = 0.5;
        world.suffix_share = 0.05;
        EXPECT_GT(Player(world).play(1000), 0.97 / world.verify(1)) << "from the start";
        Player player(world);
        player.play(200);
        EXPECT_GT(player.play(3000), 0.985 / world.verify(1));
    }
}

TEST(Policy, joins_the_suffix_match_with_the_drafter_that_guesses_elsewhere) {
    MadeUp world;
    world.drafters = {kGoodChain};
    world.match_share = 0.5;
    world.suffix_share = 0.95;
    Player player(world);
    player.play(100);
    const double joined = player.play(3000);
    EXPECT_GT(joined, 1.05 * world.best_fixed());
    world.drafters.clear();
    Player alone(world);
    alone.play(100);
    EXPECT_GT(joined, 1.02 * alone.play(3000));
}

TEST(Policy, follows_a_text_that_changes) {
    MadeUp good;
    good.drafters = {kGoodChain, kGoodBlock};
    MadeUp bad;
    bad.drafters = {kBadChain, kBadBlock};
    for (const bool first_good : {true, false}) {
        const MadeUp& first = first_good ? good : bad;
        const MadeUp& second = first_good ? bad : good;
        Player player(first);
        player.play(1000);
        player.change(second);
        player.play(300);
        EXPECT_GT(player.play(1000), 0.95 * second.best_fixed()) << first_good;
    }
}

TEST(Policy, what_was_measured_before_the_first_text_is_where_it_begins) {
    for (const bool dear : {true, false}) {
        MadeUp world;
        world.drafters = {{.guess_ms = dear ? 20.0 : 1.0, .further_ms = 1, .share = 0.6}};
        Policy policy({{.cost = 0.25, .slope = 1, .share = 0.6, .count_max = 7}});
        for (const std::int64_t rows : {1, 2, 4}) {
            policy.calibrate_window(rows, world.verify(rows));
        }
        policy.calibrate_draft(0, 1, world.draft(0, 1));
        policy.calibrate_draft(0, 3, world.draft(0, 3));
        EXPECT_EQ(policy.choose({7, {}}).who, dear ? Policy::kNobody : 0);
    }
}

TEST(Policy, what_a_drafter_has_to_take_in_first_is_part_of_what_it_costs) {
    Policy policy({{.cost = 0.1, .slope = 1, .share = 0.8, .count_max = 7}});
    for (const std::int64_t rows : {0, 2000, 2}) {
        const Policy::Offer offer{7, {}, {&rows, 1}};
        EXPECT_EQ(policy.choose(offer).who, rows > 1000 ? Policy::kNobody : 0) << rows;
    }
}

TEST(Policy, a_chain_ends_where_the_text_says_as_surely_what_follows) {
    Policy policy({{.cost = 0.1, .slope = 1, .share = 0.8, .count_max = 7}});
    ASSERT_EQ(policy.choose({7, {}}).who, 0);
    const std::vector<float> confidence = {0.97F};
    EXPECT_TRUE(policy.go_on(confidence, {}));
    const std::vector<spec::Evidence> sure(3, spec::Evidence::three_times);
    EXPECT_FALSE(policy.go_on(confidence, sure));
    EXPECT_EQ(policy.worth_after(confidence, sure), 3);
    const std::vector<spec::Evidence> unsure(3, spec::Evidence::differ);
    EXPECT_TRUE(policy.go_on(confidence, unsure));
    EXPECT_EQ(policy.worth_after(confidence, unsure), 0);
}

TEST(Policy, a_machine_that_stutters_is_not_taken_for_a_slow_one) {
    MadeUp world;
    world.drafters = {kGoodChain};
    std::vector<spec::NeuralPrior> priors = {
        {.cost = 0.25, .slope = 1, .share = 0.6, .count_max = 7}};
    spec::Costs costs(priors);
    for (int i = 0; i < 100; ++i) {
        const std::int64_t rows = 1 + i % 5;
        costs.verify.see(rows, world.verify(rows) * (i % 11 == 7 ? 50 : 1));
    }
    for (const std::int64_t rows : {1, 2, 3, 4, 5}) {
        EXPECT_NEAR(costs.verify.at(rows), world.verify(rows), 0.25 * world.verify(rows)) << rows;
    }
    // Sizes never seen lie on the line.
    EXPECT_NEAR(costs.verify.at(8), world.verify(8), 0.25 * world.verify(8));
}

}  // namespace
}  // namespace strata::test
