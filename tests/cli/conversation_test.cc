// Conversations whose answers are held to a format, beside their turns run one by one.
#include "cli/conversation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "synth/synth.h"
#include "tests/support/temp_dir.h"

namespace strata::test {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int32_t kEndOfMessage = 258;

// A model of random weights whose tokens are bytes; `ends`: with an end token.
std::unique_ptr<Engine> engine_of(const TempDir& folder, bool ends) {
    synth::SynthOptions synth;
    synth.config = synth::preset("tiny").value();
    synth.output = folder / "model.gguf";
    EXPECT_TRUE(synth::synthesize(synth).ok());
    if (!ends) {
        constexpr std::string_view kKey = "tokenizer.ggml.eos_token_id";
        std::string bytes = read_file(synth.output);
        const std::size_t at = bytes.find(kKey);
        EXPECT_NE(at, std::string::npos);
        bytes[at + kKey.size() - 1] = '_';  // a key that says nothing
        write_file(synth.output, bytes);
    }
    return Engine::load({.model = synth.output, .threads = 1, .context = 300}).value();
}

cli::ConversationOptions json_answers(std::uint64_t seed, DraftKind kind) {
    cli::ConversationOptions options;
    options.max_tokens = 60;
    options.sampling = {.temperature = 1, .seed = seed};
    options.format = ResponseFormat::json_object;
    options.drafting = {.kind = kind};
    return options;
}

std::string ask(cli::Conversation& conversation, const std::string& question) {
    std::string text;
    const Status asked = conversation.ask(question, [&](std::string_view piece) {
        text += piece;
        return true;
    });
    EXPECT_TRUE(asked.ok());
    return text;
}

// Two turns of a conversation, and the same with what comes between them spelled out.
void expect_turns(Engine& engine, bool ends) {
    int whole = 0;
    for (std::uint64_t seed = 0; whole < 3; ++seed) {
        ASSERT_LT(seed, 200u);
        const cli::ConversationOptions how = json_answers(seed, DraftKind::none);
        GenerateRequest turn{
            .max_tokens = how.max_tokens, .sampling = how.sampling, .format = how.format};
        const Message first{"user", "a"};
        turn.prompt = engine.chat_prompt(std::span(&first, 1), false).value();
        const auto answer = [&] { return engine.make_session().value().generate(turn).value(); };
        const Completion one = answer();
        if (one.finish != Finish::stop) continue;
        ++whole;
        EXPECT_TRUE(nlohmann::json::accept(one.text)) << one.text;
        EXPECT_EQ(one.tokens.back() == kEndOfMessage, ends);
        turn.prompt.insert(turn.prompt.end(), one.tokens.begin(), one.tokens.end());
        if (!ends) turn.prompt.push_back(kEndOfMessage);
        const Tokens question = engine
                                    .tokenize_with_special(
                                        "\n<|im_start|>user\nb<|im_end|>\n"
                                        "<|im_start|>assistant\n<think>\n\n"
                                        "</think>\n\n")
                                    .value();
        turn.prompt.insert(turn.prompt.end(), question.begin(), question.end());
        const Completion two = answer();
        for (const DraftKind kind : {DraftKind::none, DraftKind::mtp, DraftKind::best}) {
            auto conversation = cli::Conversation::start(engine, json_answers(seed, kind)).value();
            EXPECT_EQ(ask(conversation, "a"), one.text) << seed;
            EXPECT_EQ(ask(conversation, "b"), two.text) << seed;
            conversation.undo();
            EXPECT_EQ(ask(conversation, "b"), two.text) << seed;
        }
    }
}

TEST(Conversation, answers_in_json_are_whole_without_an_end_token_and_each_message_ends) {
    const TempDir folder;
    const auto engine = engine_of(folder, false);
    EXPECT_TRUE(engine->info().end_tokens.empty());
    expect_turns(*engine, false);
}

TEST(Conversation, an_end_token_of_an_answer_in_json_ends_its_message) {
    const TempDir folder;
    const auto engine = engine_of(folder, true);
    EXPECT_EQ(engine->info().end_tokens, Tokens{kEndOfMessage});
    expect_turns(*engine, true);
}

}  // namespace
}  // namespace strata::test
