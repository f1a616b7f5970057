// Answers of toy models that are held to JSON.

#include "engine/answer_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampler.h"
#include "synth/synth.h"
#include "tests/support/random.h"

namespace strata::test {
namespace {

using Tokens = std::vector<std::int32_t>;
using Json = nlohmann::json;

constexpr std::int32_t kTurn = 257;
constexpr std::int32_t kEnd = 258;
constexpr std::int32_t kThink = 259;
constexpr std::int32_t kThought = 260;
constexpr std::int64_t kTokens = 300;
const Tokens kEnds = {256, kEnd};

// One token a byte, then control tokens, then ids of no token.
const Tokenizer& bytes_alone() {
    static const Tokenizer tokenizer = Tokenizer::create(synth::byte_vocabulary(kTokens)).value();
    return tokenizer;
}

// Logits that have to do with nothing but the place and the number of the run, some more than there
// are tokens; a quote is likelier, so that strings end.
std::vector<float> random_logits(std::uint64_t run, std::size_t place) {
    Random random("logits", run * 100000 + place);
    std::vector<float> logits = random.floats(kTokens + 20, -1, 1);
    logits['"'] += 3;
    return logits;
}

// Writes an answer to its end, of at most `most` tokens; `change` has the last word on logits.
template <typename Change>
Tokens answer(const Sampling& sampling, std::uint64_t run, std::size_t most, const Change& change) {
    grammar::TokenSets texts = text_tokens(bytes_alone(), kEnds);
    AnswerRule rule(texts, kEnds, std::nullopt);
    Sampler sampler(sampling);
    Tokens tokens;
    while (tokens.size() < most) {
        std::vector<float> logits = random_logits(run, tokens.size());
        change(logits);
        const auto token = sampler.pick(logits, tokens, std::ssize(tokens), &rule);
        EXPECT_TRUE(token.ok()) << token.error().message;
        if (!token.ok()) break;
        tokens.push_back(*token);
        if (std::ranges::count(kEnds, *token) > 0) break;
        EXPECT_TRUE(rule.take(*token));
    }
    return tokens;
}

std::string text_of(const Tokens& tokens) {
    return bytes_alone().decode(tokens, ControlTokens::skip);
}

// API-22: whatever the logits and however they are drawn from.
TEST(AnswerRule, every_answer_of_random_logits_is_a_json_object) {
    const Sampling samplings[] = {
        {.temperature = 1},
        {.temperature = 0.7, .top_k = 5},
        {.temperature = 2, .top_p = 0.5, .repeat_penalty = 1.3},
        {.temperature = 1, .min_p = 0.3, .presence_penalty = 0.5, .penalty_window = 8},
        {.frequency_penalty = 1, .penalty_window = 20},
        {}};
    std::size_t members = 0;
    for (std::uint64_t run = 0; run < 400; ++run) {
        Sampling sampling = samplings[run % std::size(samplings)];
        sampling.seed = run;
        const Tokens tokens = answer(sampling, run, 20000, [](std::vector<float>&) {});
        ASSERT_FALSE(tokens.empty());
        EXPECT_GT(std::ranges::count(kEnds, tokens.back()), 0) << run;
        const Json value = Json::parse(text_of(tokens), nullptr, false);
        EXPECT_TRUE(value.is_object()) << text_of(tokens);
        members += value.size();
    }
    EXPECT_GT(members, 400u);
}

// TOK-06: the tokens are bytes, most of which are no characters.
TEST(AnswerRule, strings_of_byte_tokens_alone_are_whole_characters) {
    std::size_t letters = 0;
    for (std::uint64_t run = 0; run < 40; ++run) {
        const auto no_ascii = [](std::vector<float>& logits) {
            for (std::size_t byte = 0; byte < 0x80; ++byte) {
                if (std::string("{}[]\":,").find(static_cast<char>(byte)) != std::string::npos)
                    continue;
                logits[byte] = -std::numeric_limits<float>::infinity();
            }
        };
        const std::string text =
            text_of(answer({.temperature = 1, .seed = run}, run, 20000, no_ascii));
        EXPECT_TRUE(Json::parse(text, nullptr, false).is_object()) << text;
        letters += static_cast<std::size_t>(
            std::ranges::count_if(text, [](char byte) { return (byte & 0x80) != 0; }));
    }
    EXPECT_GT(letters, 100u);
}

TEST(AnswerRule, a_cut_answer_is_the_beginning_of_one) {
    for (std::uint64_t run = 0; run < 40; ++run) {
        const Tokens tokens = answer({.temperature = 1, .seed = run}, run, run, [](auto&) {});
        grammar::Json state;
        EXPECT_TRUE(state.push(text_of(tokens)));
    }
}

TEST(AnswerRule, nothing_is_said_until_thinking_has_ended) {
    grammar::TokenSets texts = text_tokens(bytes_alone(), kEnds);
    AnswerRule rule(texts, kEnds, kThought);
    for (const std::int32_t token : {std::int32_t{'`'}, kTurn, kThink, kThought, 310}) {
        EXPECT_TRUE(rule.allows(token)) << token;
    }
    for (const std::int32_t token : kEnds) EXPECT_FALSE(rule.allows(token)) << token;
    for (const std::int32_t token : {std::int32_t{'x'}, kThink, kThought}) {
        EXPECT_FALSE(rule.holds());
        EXPECT_TRUE(rule.take(token));
    }
    EXPECT_TRUE(rule.holds());
    // No token but those of text.
    for (const std::int32_t token : {std::int32_t{'`'}, kEnd, kTurn, kThink, kThought, 280, -1}) {
        EXPECT_FALSE(rule.allows(token)) << token;
        EXPECT_FALSE((*rule.allowed())->has(token)) << token;
    }
    for (const char byte : {'\n', '{', '}'}) {
        EXPECT_TRUE(rule.allows(byte));
        EXPECT_TRUE((*rule.allowed())->has(byte));
        EXPECT_TRUE(rule.take(byte));
    }
    for (std::int32_t token = 0; token < kTokens; ++token) {
        const bool end = token == kEnds[0] || token == kEnds[1];
        EXPECT_EQ(rule.allows(token), end) << token;
        EXPECT_EQ((*rule.allowed())->has(token), end) << token;
    }
}

// Also where that is an end token of the model.
TEST(AnswerRule, what_ends_the_thinking_ends_no_answer) {
    const Tokens ends = {kThought, kEnd};
    grammar::TokenSets texts = text_tokens(bytes_alone(), ends);
    AnswerRule rule(texts, ends, kThought);
    EXPECT_TRUE(rule.allows(kThought));
    EXPECT_FALSE(rule.allows(kEnd));
    EXPECT_TRUE(rule.take(kThought));
    EXPECT_TRUE(rule.holds());
    EXPECT_FALSE(rule.allows(kThought));
}

TEST(AnswerRule, while_the_model_thinks_an_end_token_is_drawn_again) {
    grammar::TokenSets texts = text_tokens(bytes_alone(), kEnds);
    std::vector<float> logits(kTokens, 0);
    logits[kEnd] = std::numeric_limits<float>::infinity();
    logits['x'] = 8;
    for (const double temperature : {0.0, 0.001}) {
        AnswerRule rule(texts, kEnds, kThought);
        EXPECT_EQ(*Sampler({.temperature = temperature}).pick(logits, {}, 0, &rule), 'x');
    }
}

TEST(AnswerRule, an_answer_without_end_tokens_ends_with_its_last_brace) {
    grammar::TokenSets texts = text_tokens(bytes_alone(), {});
    AnswerRule rule(texts, {}, std::nullopt);
    EXPECT_TRUE(rule.take('{'));
    EXPECT_FALSE(rule.take('}'));
}

TEST(AnswerRule, thinking_is_open_where_the_last_answer_begins_with_it) {
    const auto open = [](const Tokens& prompt) {
        return open_thinking(bytes_alone(), prompt, kEnds);
    };
    EXPECT_EQ(open({'a', kThink, '\n'}), kThought);
    EXPECT_EQ(open({kThink, kThought, kEnd, kTurn, kThink}), kThought);
    EXPECT_EQ(open({kThink, '\n', kThought, '\n'}), std::nullopt);
    EXPECT_EQ(open({kThink, 'a', kEnd, kTurn, 'a'}), std::nullopt);
    EXPECT_EQ(open({'a'}), std::nullopt);
}

// An end token that is spelled like text is no part of the answer.
TEST(AnswerRule, no_end_token_is_text) {
    const Tokens ends = {'{'};
    const grammar::TokenSets texts = text_tokens(bytes_alone(), ends);
    EXPECT_FALSE(texts.may_follow({}, '{'));
    EXPECT_TRUE(texts.may_follow({}, ' '));
}

TEST(AnswerRule, where_no_token_goes_on_there_is_an_error) {
    grammar::TokenSets texts({"a", "b"});
    AnswerRule rule(texts, kEnds, std::nullopt);
    for (const double temperature : {0.0, 1.0}) {
        const auto token =
            Sampler({.temperature = temperature}).pick(std::vector<float>{1, 2}, {}, 0, &rule);
        ASSERT_FALSE(token.ok());
        EXPECT_EQ(token.error().message,
                  "none of the vocabulary's 2 tokens goes on with the answer as JSON");
    }
}

TEST(AnswerRule, logits_of_tokens_that_are_left_out_do_not_matter) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    grammar::TokenSets texts({"a", "{"});
    for (const double temperature : {0.0, 1.0}) {
        AnswerRule rule(texts, kEnds, std::nullopt);
        Sampler sampler({.temperature = temperature});
        const auto token = sampler.pick(std::vector<float>{kInfinity, -3}, {}, 0, &rule);
        ASSERT_TRUE(token.ok()) << token.error().message;
        EXPECT_EQ(*token, 1);
        const auto none = sampler.pick(std::vector<float>{5, -kInfinity}, {}, 0, &rule);
        ASSERT_FALSE(none.ok());
        EXPECT_NE(none.error().message.find("finite"), std::string::npos);
    }
}

}  // namespace
}  // namespace strata::test
