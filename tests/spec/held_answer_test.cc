// Answers that are held to JSON while guesses are verified: each row of a window is held to what
// was taken before it.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "engine/answer_rule.h"
#include "engine/sampler.h"
#include "spec/mtp.h"
#include "spec/round.h"
#include "synth/synth.h"
#include "tests/model/tiny_target.h"
#include "tests/spec/scripted_drafter.h"

namespace strata::test {
namespace {

constexpr std::int32_t kEnd = 258;
constexpr std::int32_t kThink = 259;
constexpr std::int32_t kThought = 260;
const Tokens kEnds = {kEnd};
constexpr std::size_t kHeldPrompt = 9;

struct HeldText {
    Tokens text;
    std::string state;
    spec::Verified first;  // window
};

class HeldAnswer : public ::testing::Test {
  protected:
    using MakeDrafter = std::function<std::unique_ptr<spec::Drafter>(model::Sequence&)>;
    // Logits in place of the target's own after a text.
    using Logits = std::function<std::vector<float>(const Tokens& text)>;

    // Goes on with a prompt of kHeldPrompt tokens, the last of which is `last`, to `length` tokens.
    HeldText answer(const Sampling& sampling, std::int32_t last, std::size_t length,
                    std::int64_t rows, const MakeDrafter& make, const Logits& logits = {}) {
        HeldText made;
        Tokens& text = made.text;
        text = random_tokens("held", kHeldPrompt, target_->config());
        text.back() = last;
        model::Sequence sequence = target_.sequence(true);
        const auto read = target_.run(sequence, text, 64, false);
        std::vector<float> next(read.end() - target_->config().vocabulary, read.end());
        AnswerRule rule(texts_, kEnds, open_thinking(tokenizer_, text, kEnds));
        Sampler sampler(sampling);
        const spec::Take take = [&](std::span<const float> row) -> Result<bool> {
            const std::vector<float> own = logits ? logits(text) : std::vector<float>();
            STRATA_ASSIGN(const std::int32_t token,
                          sampler.pick(logits ? own : row, text, std::ssize(text), &rule));
            text.push_back(token);
            if (token == kEnd) return true;
            return !rule.take(token) || text.size() == length;
        };
        bool ended = take(next).value();
        const auto drafter = make(sequence);
        for (bool first = true; !ended; first = false) {
            const auto round =
                spec::run_round({*target_, sequence, drafter.get()}, text, rows, take, next);
            EXPECT_TRUE(round.ok());
            if (!round.ok()) break;
            if (first) made.first = round->window;
            ended = round->ended;
        }
        made.state = target_->save(sequence);
        return made;
    }

    static std::unique_ptr<spec::Drafter> no_drafter(model::Sequence&) { return nullptr; }

    TinyTarget target_;
    Tokenizer tokenizer_ =
        Tokenizer::create(synth::byte_vocabulary(target_->config().vocabulary)).value();
    grammar::TokenSets texts_ = text_tokens(tokenizer_, kEnds);
};

bool is_beginning_of_json(const Tokens& tokens) {
    grammar::Json state;
    return std::ranges::all_of(tokens, [&](std::int32_t token) {
        return token < 256 ? state.push(static_cast<std::uint8_t>(token))
                           : token == kEnd && state.complete();
    });
}

// SPEC-28: the guesses x, </think>, `, ` are what the target says itself, and the last two of them
// are no JSON.
TEST_F(HeldAnswer, the_token_after_the_end_of_thinking_inside_a_window_obeys) {
    const Tokens script = {'t', 'x', kThought, '`', '`'};
    const auto scripted = [&](const Tokens& text) {
        std::vector<float> logits(static_cast<std::size_t>(target_->config().vocabulary), -3);
        const std::size_t at = text.size() - kHeldPrompt;
        if (at < script.size()) logits[static_cast<std::size_t>(script[at])] = 30;
        logits['{'] = 20;
        return logits;
    };
    Tokens future = random_tokens("held", kHeldPrompt, target_->config());
    future.insert(future.end(), script.begin(), script.end());
    const MakeDrafter make = [&](model::Sequence&) {
        return std::make_unique<ScriptedDrafter>(ScriptedDrafter::Kind::right, future,
                                                 target_->config().vocabulary);
    };
    constexpr std::size_t kLength = kHeldPrompt + 4;
    for (const double temperature : {0.0, 0.8}) {
        const Sampling sampling{.temperature = temperature, .seed = 5};
        const HeldText want = answer(sampling, kThink, kLength, 1, no_drafter, scripted);
        const HeldText got = answer(sampling, kThink, kLength, 5, make, scripted);
        EXPECT_EQ(Tokens(got.text.begin() + kHeldPrompt, got.text.end()),
                  (Tokens{'t', 'x', kThought, '{'}));
        EXPECT_EQ(got.first.rows, 5);
        EXPECT_EQ(got.first.accepted, 2);
        EXPECT_EQ(got.text, want.text);
        EXPECT_EQ(got.state, want.state);
    }
}

TEST_F(HeldAnswer, drafters_change_no_token_and_no_state_of_an_answer_in_json) {
    using Kind = ScriptedDrafter::Kind;
    const Sampling samplings[] = {
        {},
        {.temperature = 0.8, .seed = 5},
        {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .repeat_penalty = 1.2, .seed = 6}};
    for (const Sampling& sampling : samplings) {
        const HeldText want = answer(sampling, 'a', 60, 1, no_drafter);
        EXPECT_TRUE(is_beginning_of_json({want.text.begin() + kHeldPrompt, want.text.end()}));
        for (const std::int64_t rows : {2, 5, 16}) {
            for (const Kind kind : {Kind::right, Kind::wrong, Kind::random, Kind::sometimes}) {
                const HeldText got = answer(sampling, 'a', 60, rows, [&](model::Sequence&) {
                    return std::make_unique<ScriptedDrafter>(kind, want.text,
                                                             target_->config().vocabulary);
                });
                EXPECT_EQ(got.text, want.text) << static_cast<int>(kind) << ' ' << rows;
                EXPECT_EQ(got.state, want.state) << static_cast<int>(kind) << ' ' << rows;
            }
            const HeldText mtp = answer(sampling, 'a', 60, rows, [&](model::Sequence& sequence) {
                return std::make_unique<spec::MtpDrafter>(*target_, sequence, 0.0f);
            });
            EXPECT_EQ(mtp.text, want.text) << rows;
            EXPECT_EQ(mtp.state, want.state) << rows;
        }
    }
}

}  // namespace
}  // namespace strata::test
