// Answers in JSON through the public interface, from a model of random weights whose tokens are
// bytes.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "grammar/json.h"
#include "spec/suffix.h"
#include "strata/engine.h"
#include "synth/synth.h"
#include "tests/support/temp_dir.h"

namespace strata::test {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int32_t kThinkToken = 259;
constexpr std::int32_t kThoughtToken = 260;

class Formatted : public ::testing::Test {
  protected:
    Formatted() {
        synth::SynthOptions synth;
        synth.config = synth::preset("tiny").value();
        synth.config.context = 1200;
        synth.output = folder_ / "tiny.gguf";
        EXPECT_TRUE(synth::synthesize(synth).ok());
        engine_ = Engine::load({.model = synth.output, .threads = 1, .context = 400}).value();
    }

    static GenerateRequest request(const Sampling& sampling, std::int64_t tokens) {
        GenerateRequest request;
        request.prompt = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3};
        request.max_tokens = tokens;
        request.sampling = sampling;
        request.format = ResponseFormat::json_object;
        return request;
    }
    Completion generate(const Drafting& drafting, const GenerateRequest& request) {
        return engine_->make_session(0, drafting).value().generate(request).value();
    }

    TempDir folder_;
    std::unique_ptr<Engine> engine_;
};

// One whole object where the answer ended, else the beginning of one.
void expect_json(const Completion& answer, std::string_view text) {
    grammar::Json state;
    EXPECT_TRUE(state.push(text)) << text;
    EXPECT_EQ(state.complete(), answer.finish == Finish::stop) << text;
    EXPECT_EQ(answer.whole, state.complete()) << text;
    const bool whole = nlohmann::json::accept(text);
    EXPECT_EQ(whole, state.complete()) << text;
}

TEST_F(Formatted, every_drafter_gives_the_undrafted_answer) {
    const Sampling samplings[] = {{},
                                  {.temperature = 0.8, .seed = 2},
                                  {.temperature = 0.8,
                                   .top_k = 30,
                                   .top_p = 0.9,
                                   .min_p = 0.01,
                                   .presence_penalty = 0.5,
                                   .seed = 9}};
    for (const Sampling& sampling : samplings) {
        const GenerateRequest asked = request(sampling, 100);
        const Completion want = generate({}, asked);
        expect_json(want, want.text);
        for (const DraftKind kind :
             {DraftKind::suffix, DraftKind::mtp, DraftKind::joined, DraftKind::best}) {
            for (const std::int64_t rows : {3, 16}) {
                const Completion got = generate({.kind = kind, .rows = rows}, asked);
                EXPECT_EQ(got.tokens, want.tokens) << rows;
                EXPECT_EQ(got.text, want.text) << rows;
                EXPECT_EQ(got.finish, want.finish) << rows;
            }
        }
    }
}

TEST_F(Formatted, an_answer_that_ends_is_one_object_and_an_end_token) {
    int ended = 0;
    for (std::uint64_t seed = 0; ended < 5; ++seed) {
        ASSERT_LT(seed, 400u);
        const Completion answer =
            generate({.kind = DraftKind::mtp}, request({.temperature = 1, .seed = seed}, 60));
        expect_json(answer, answer.text);
        if (answer.finish != Finish::stop) continue;
        ++ended;
        const auto& ends = engine_->info().end_tokens;
        EXPECT_EQ(std::ranges::count(ends, answer.tokens.back()), 1);
    }
}

TEST_F(Formatted, thinking_is_free_and_what_follows_it_is_json) {
    int thought = 0;
    for (std::uint64_t seed = 0; thought < 3; ++seed) {
        ASSERT_LT(seed, 200u);
        GenerateRequest asked = request({.temperature = 2, .seed = seed}, 120);
        asked.prompt.push_back(kThinkToken);
        const Completion want = generate({}, asked);
        const auto end = std::ranges::find(want.tokens, kThoughtToken);
        if (end - want.tokens.begin() < 5 || want.tokens.end() - end < 20) continue;
        ++thought;
        const Tokens thinking(want.tokens.begin(), end);
        const Tokens answer(end + 1, want.tokens.end());
        grammar::Json state;
        EXPECT_FALSE(state.push(engine_->detokenize(thinking)));
        expect_json(want, std::string_view(want.text).substr(want.text.find("</think>") + 8));
        for (const DraftKind kind : {DraftKind::suffix, DraftKind::mtp, DraftKind::best}) {
            EXPECT_EQ(generate({.kind = kind, .rows = 8}, asked).tokens, want.tokens) << seed;
        }
        // Without the format the same is thought, to an end token at most.
        asked.format = ResponseFormat::text;
        asked.max_tokens = std::ssize(thinking) + 1;
        Tokens free = generate({}, asked).tokens;
        if (std::ranges::count(engine_->info().end_tokens, free.back()) > 0) free.pop_back();
        EXPECT_TRUE(std::ranges::equal(free, std::span(want.tokens).first(free.size())));
    }
}

// In place of an end token another one is drawn, and thinking goes on.
TEST_F(Formatted, no_end_token_ends_an_answer_while_the_model_thinks) {
    const auto& ends = engine_->info().end_tokens;
    int ended = 0;
    for (std::uint64_t seed = 0; ended < 2; ++seed) {
        ASSERT_LT(seed, 400u);
        GenerateRequest asked = request({.temperature = 2, .seed = seed}, 200);
        asked.prompt.push_back(kThinkToken);
        asked.format = ResponseFormat::text;
        const Tokens free = generate({}, asked).tokens;
        if (std::ranges::count(free, kThoughtToken) > 0) continue;
        if (std::ranges::count(ends, free.back()) == 0) continue;
        ++ended;
        asked.format = ResponseFormat::json_object;
        const Completion held = generate({}, asked);
        ASSERT_GT(held.tokens.size(), free.size());
        EXPECT_TRUE(std::equal(free.begin(), free.end() - 1, held.tokens.begin()));
        const auto thought = std::ranges::find(held.tokens, kThoughtToken);
        for (auto token = held.tokens.begin(); token != thought; ++token) {
            EXPECT_EQ(std::ranges::count(ends, *token), 0) << seed;
        }
        EXPECT_EQ(generate({.kind = DraftKind::mtp}, asked).tokens, held.tokens) << seed;
    }
}

// Twice after each byte, so that the text says it will come again, and it is the model's own token
// where the answer is free.
TEST_F(Formatted, an_end_token_that_is_guessed_while_the_model_thinks_is_not_taken) {
    engine_ = Engine::load({.model = folder_ / "tiny.gguf", .threads = 1, .context = 1200}).value();
    const std::int32_t end = engine_->info().end_tokens.front();
    GenerateRequest asked = request({.temperature = 2}, 40);
    asked.prompt.clear();
    for (std::int32_t byte = 0; byte < 256; ++byte) {
        asked.prompt.insert(asked.prompt.end(), {byte, end, byte, end});
    }
    asked.prompt.push_back(kThinkToken);
    int guessed = 0;
    for (; guessed < 2; ++asked.sampling.seed) {
        ASSERT_LT(asked.sampling.seed, 400u);
        asked.format = ResponseFormat::text;
        const Tokens free = generate({}, asked).tokens;
        if (free.back() != end || std::ranges::count(free, kThoughtToken) > 0) continue;
        Tokens text = asked.prompt;
        text.insert(text.end(), free.begin(), free.end() - 1);
        const Tokens guesses = spec::SuffixDrafter().guess({text, 4, nullptr, {}})->tokens;
        if (guesses.empty() || guesses.front() != end) continue;
        ++guessed;
        asked.format = ResponseFormat::json_object;
        const Tokens held = generate({}, asked).tokens;
        ASSERT_GT(held.size(), free.size());
        EXPECT_NE(held[free.size() - 1], end);
        for (const DraftKind kind : {DraftKind::suffix, DraftKind::joined, DraftKind::best}) {
            const Completion drafted = generate({.kind = kind, .rows = 5}, asked);
            EXPECT_EQ(drafted.tokens, held) << asked.sampling.seed;
            // The best may be none.
            EXPECT_TRUE(kind == DraftKind::best || drafted.draft.drafted > 0);
        }
    }
}

TEST_F(Formatted, each_answer_of_a_conversation_is_an_object_of_its_own) {
    for (const DraftKind kind : {DraftKind::none, DraftKind::mtp}) {
        Session session = engine_->make_session(0, {.kind = kind}).value();
        GenerateRequest turn = request({.temperature = 0.8, .seed = 1}, 25);
        for (int i = 0; i < 3; ++i) {
            const Completion answer = session.generate(turn).value();
            expect_json(answer, answer.text);
            EXPECT_EQ(answer.tokens, generate({}, turn).tokens) << i;
            turn.prompt.insert(turn.prompt.end(), answer.tokens.begin(), answer.tokens.end());
            turn.prompt.insert(turn.prompt.end(), {258, 257, 'a'});
            // A free answer in between leaves nothing behind.
            turn.format = i == 0 ? ResponseFormat::text : ResponseFormat::json_object;
            if (i > 0) continue;
            const Completion free = session.generate(turn).value();
            turn.prompt.insert(turn.prompt.end(), free.tokens.begin(), free.tokens.end());
            turn.format = ResponseFormat::json_object;
        }
    }
}

TEST_F(Formatted, end_tokens_that_are_ignored_are_refused) {
    GenerateRequest asked = request({}, 5);
    asked.ignore_end_tokens = true;
    const auto refused = engine_->make_session().value().generate(asked);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("ends with one"), std::string::npos)
        << refused.error().message;
}

}  // namespace
}  // namespace strata::test
