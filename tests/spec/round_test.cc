// Rounds: whoever guesses, and however wrong, the text is the undrafted one and the state is that
// of the text.

#include "spec/round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/sampler.h"
#include "spec/mtp.h"
#include "spec/suffix.h"
#include "tests/model/tiny_target.h"
#include "tests/spec/scripted_drafter.h"

namespace strata::test {
namespace {

struct Generated {
    Tokens text;
    std::string state;
    std::int64_t windows = 0;
    std::int64_t accepted = 0;
};

constexpr std::size_t kPrompt = 21;
constexpr std::size_t kText = 60;

// Continues a prompt to kText tokens.
Generated generate(TinyTarget& target, const Sampling& sampling, std::int64_t rows,
                   const std::function<std::unique_ptr<spec::Drafter>(model::Sequence&)>& make,
                   bool mtp = true) {
    Generated out;
    model::Sequence sequence = target.sequence(mtp);
    out.text = random_tokens("prompt", kPrompt, target->config());
    const auto logits = target.run(sequence, out.text, 64, false);
    const auto width = target->config().vocabulary;
    std::vector<float> next(logits.end() - width, logits.end());
    Sampler sampler(sampling);
    const spec::Take take = [&](std::span<const float> row) -> Result<bool> {
        STRATA_ASSIGN(const std::int32_t token,
                      sampler.pick(row, out.text, static_cast<std::int64_t>(out.text.size())));
        out.text.push_back(token);
        return out.text.size() == kText;
    };
    EXPECT_TRUE(take(next).ok());
    const auto drafter = make(sequence);
    bool ended = false;
    while (!ended) {
        const auto round =
            spec::run_round({*target, sequence, drafter.get()}, out.text, rows, take, next);
        EXPECT_TRUE(round.ok());
        if (!round.ok()) break;
        ended = round->ended;
        ++out.windows;
        out.accepted += round->window.accepted;
        EXPECT_EQ(static_cast<std::size_t>(sequence.length()), out.text.size() - 1);
    }
    out.state = target->save(sequence);
    return out;
}

std::unique_ptr<spec::Drafter> no_drafter(model::Sequence&) { return nullptr; }

const std::vector<Sampling> kSamplings = {
    {},
    {.temperature = 1, .top_k = 20, .seed = 5},
    {.temperature = 0.8, .min_p = 0.02, .repeat_penalty = 1.3, .frequency_penalty = 0.2, .seed = 6},
};

// SPEC-01, SPEC-04: what is always right, always wrong, either, or silent in between leaves the
// state of the tokens that were taken.
TEST(Rounds, scripted_drafters_change_no_token_and_no_state) {
    using Kind = ScriptedDrafter::Kind;
    TinyTarget target;
    const auto vocabulary = target->config().vocabulary;
    for (const Sampling& sampling : kSamplings) {
        const Generated want = generate(target, sampling, 1, no_drafter);
        for (const Kind kind :
             {Kind::right, Kind::wrong, Kind::random, Kind::end_tokens, Kind::sometimes}) {
            for (const std::int64_t rows : {2, 5, 16}) {
                const Generated got = generate(target, sampling, rows, [&](model::Sequence&) {
                    return std::make_unique<ScriptedDrafter>(kind, want.text, vocabulary);
                });
                const auto label =
                    std::to_string(static_cast<int>(kind)) + " with rows " + std::to_string(rows);
                EXPECT_EQ(got.text, want.text) << label;
                EXPECT_EQ(got.state, want.state) << label;
                if (kind == Kind::wrong) {
                    EXPECT_EQ(got.accepted, 0) << label;
                }
                if (kind == Kind::right) {
                    const auto tokens = static_cast<std::int64_t>(kText - kPrompt - 1);
                    EXPECT_EQ(got.windows, (tokens + rows - 1) / rows) << label;
                }
            }
        }
    }
}

TEST(Rounds, real_drafters_change_no_token_and_no_state) {
    TinyTarget target;
    for (const Sampling& sampling : kSamplings) {
        const Generated want = generate(target, sampling, 1, no_drafter);
        for (const std::int64_t rows : {2, 4, 9}) {
            for (const float floor : {0.0f, 0.01f, 1.0f}) {
                const Generated mtp = generate(target, sampling, rows, [&](model::Sequence& s) {
                    return std::make_unique<spec::MtpDrafter>(*target, s, floor);
                });
                EXPECT_EQ(mtp.text, want.text) << rows << ' ' << floor;
                EXPECT_EQ(mtp.state, want.state) << rows << ' ' << floor;
            }
            const Generated suffix = generate(target, sampling, rows, [](model::Sequence&) {
                return std::make_unique<spec::SuffixDrafter>();
            });
            EXPECT_EQ(suffix.text, want.text) << rows;
            EXPECT_EQ(suffix.state, want.state) << rows;
        }
    }
}

// SPEC-22: what stands after an end counts for nothing, though it was guessed and would be right.
TEST(Rounds, guesses_after_the_end_of_a_text_are_not_counted_as_right) {
    constexpr std::int64_t kRows = 8;
    TinyTarget target;
    const Generated known = generate(target, {}, 1, no_drafter);
    for (std::int64_t taken = 1; taken <= kRows; ++taken) {
        model::Sequence sequence = target.sequence();
        Tokens text(known.text.begin(), known.text.begin() + kPrompt + 1);
        target.run(sequence, std::span(text).first(kPrompt), 64, false);
        ScriptedDrafter drafter(ScriptedDrafter::Kind::right, known.text,
                                target->config().vocabulary);
        const std::size_t end = text.size() + static_cast<std::size_t>(taken);
        const spec::Take take = [&](std::span<const float> row) -> Result<bool> {
            text.push_back(static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin()));
            return text.size() == end;
        };
        std::vector<float> logits;
        const auto round =
            spec::run_round({*target, sequence, &drafter}, text, kRows, take, logits).value();
        EXPECT_TRUE(round.ended);
        EXPECT_EQ(text.size(), end);
        EXPECT_EQ(round.window.rows, kRows);
        // The last row's token was not guessed.
        EXPECT_EQ(round.window.accepted, std::min(taken, kRows - 1)) << taken;
        EXPECT_EQ(sequence.length(), static_cast<std::int64_t>(end) - 1);
    }
}

// Guesses one token, always the same.
class OneToken final : public spec::Drafter {
  public:
    explicit OneToken(std::int32_t token) : token_(token) {}
    std::string_view name() const override { return "one token"; }
    Result<spec::Guesses> guess(const spec::GuessRequest&) override {
        return spec::Guesses{{token_}, {}, 0};
    }

  private:
    std::int32_t token_;
};

// Chi-square of the first token of windows of many seeds against the target's own probabilities.
// `biased` plants the fault of a verifier that takes a guess wherever it is possible at all.
double chi_square_of_windows(bool biased) {
    constexpr int kSeeds = 600;
    constexpr std::int64_t kLikeliest = 6;
    TinyTarget target;
    model::Sequence sequence = target.sequence();
    const Tokens text = random_tokens("chi", 12, target->config());
    target.run(sequence, std::span(text).first(11), 64, false);
    const std::string before = target->save(sequence);
    std::vector<float> logits = target.step(sequence, std::span(text).last(1), true);
    target->drop(sequence);
    std::vector<std::pair<double, std::int32_t>> likeliest;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        likeliest.push_back({-static_cast<double>(logits[i]), static_cast<std::int32_t>(i)});
    }
    std::sort(likeliest.begin(), likeliest.end());
    likeliest.resize(kLikeliest);
    double sum = 0;
    for (const auto& [minus, token] : likeliest) sum += std::exp(likeliest[0].first - minus);
    OneToken drafter(likeliest[1].second);
    std::map<std::int32_t, int> counts;
    for (int seed = 0; seed < kSeeds; ++seed) {
        EXPECT_TRUE(target->restore(sequence, before).ok());
        Sampler sampler(
            {.temperature = 1, .top_k = kLikeliest, .seed = static_cast<std::uint64_t>(seed)});
        Tokens grown = text;
        const spec::Take take = [&](std::span<const float> row) -> Result<bool> {
            STRATA_ASSIGN(std::int32_t token,
                          sampler.pick(row, grown, static_cast<std::int64_t>(grown.size())));
            if (biased && grown.size() == text.size()) token = likeliest[1].second;
            grown.push_back(token);
            return false;
        };
        EXPECT_TRUE(spec::run_round({*target, sequence, &drafter}, grown, 2, take, logits).ok());
        ++counts[grown[text.size()]];
    }
    double chi_square = 0;
    for (const auto& [minus, token] : likeliest) {
        const double want = kSeeds * std::exp(likeliest[0].first - minus) / sum;
        chi_square += (counts[token] - want) * (counts[token] - want) / want;
    }
    return chi_square;
}

TEST(Rounds, drafted_draws_follow_the_target_s_distribution) {
    // Of 5 degrees of freedom: passed by one of a hundred thousand fair runs.
    constexpr double kLimit = 30.9;
    EXPECT_LT(chi_square_of_windows(false), kLimit);
    EXPECT_GT(chi_square_of_windows(true), kLimit);
}

// Draws as it is asked to, from logits of its own.
class Drawing final : public spec::Drafter {
  public:
    explicit Drawing(std::vector<float> logits) : logits_(std::move(logits)) {}
    std::string_view name() const override { return "drawing"; }
    Result<spec::Guesses> guess(const spec::GuessRequest& request) override {
        STRATA_ASSIGN(const std::int32_t token, request.draw->draw(logits_, request.text));
        return spec::Guesses{{token}, {}, 0};
    }

  private:
    std::vector<float> logits_;
};

// To four binary digits.
float rounded(float value) {
    int exponent = 0;
    const float digits = std::frexp(value, &exponent);
    return std::ldexp(std::round(digits * 16) / 16, exponent);
}

// SAMP-03: a guess is right where it is the token that the target draws, from its own logits and
// with the same noise: no ratio of two chances is computed, which rounding could make a wrong one.
TEST(Rounds, a_guess_drawn_from_rounded_logits_is_held_to_the_targets_own_draw) {
    constexpr int kSeeds = 400;
    TinyTarget target;
    model::Sequence sequence = target.sequence();
    const Tokens text = random_tokens("rounded", 12, target->config());
    target.run(sequence, std::span(text).first(11), 64, false);
    const std::string before = target->save(sequence);
    const std::vector<float> exact = target.step(sequence, std::span(text).last(1), true);
    target->drop(sequence);
    std::vector<float> rough(exact.size());
    std::ranges::transform(exact, rough.begin(), rounded);
    Drawing drafter(rough);
    int wrong = 0;
    for (int seed = 0; seed < kSeeds; ++seed) {
        ASSERT_TRUE(target->restore(sequence, before).ok());
        Sampler sampler({.temperature = 1, .seed = static_cast<std::uint64_t>(seed)});
        const std::int32_t want = sampler.draw(exact, text).value();
        const bool right = sampler.draw(rough, text).value() == want;
        Tokens grown = text;
        const spec::Take take = [&](std::span<const float> row) -> Result<bool> {
            STRATA_ASSIGN(const std::int32_t token, sampler.draw(row, grown));
            grown.push_back(token);
            return false;
        };
        std::vector<float> logits;
        const spec::RoundParts parts{
            .target = *target, .sequence = sequence, .drafter = &drafter, .draw = &sampler};
        const auto round = spec::run_round(parts, grown, 2, take, logits).value();
        EXPECT_EQ(grown[text.size()], want) << seed;
        EXPECT_EQ(round.window.accepted, right ? 1 : 0) << seed;
        wrong += right ? 0 : 1;
    }
    EXPECT_GT(wrong, 0) << "rounding changes a draw now and then";
    EXPECT_LT(wrong, kSeeds / 2);
}

TEST(Rounds, an_error_while_taking_leaves_the_sequence_as_it_was) {
    TinyTarget target;
    model::Sequence sequence = target.sequence();
    Tokens text = random_tokens("error", 12, target->config());
    target.run(sequence, std::span(text).first(11), 64, false);
    const std::string before = target->save(sequence);
    std::vector<float> logits;
    const auto round = spec::run_round(
        {*target, sequence}, text, 1,
        [](std::span<const float>) -> Result<bool> { return Error{"no"}; }, logits);
    EXPECT_FALSE(round.ok());
    EXPECT_EQ(target->save(sequence), before);
}

}  // namespace
}  // namespace strata::test
