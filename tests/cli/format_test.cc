// Answers in JSON from the program, with the bundled models.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/expect.h"
#include "tests/cli/models.h"
#include "tests/cli/run_binary.h"

namespace strata::test {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

Ran run_with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--response-format", "json_object"});
    return run_strata(words);
}

bool is_object(const std::string& text) {
    return nlohmann::json::parse(text, nullptr, false).is_object();
}

TEST(ResponseFormat, generated_text_is_one_json_object_with_any_drafter_and_none) {
    const Words generate = {"generate",
                            "-m",
                            kBundledModel,
                            "-p",
                            "{\"name\": \"strata\", \"keywords\": [\"c++\"], \"version\": 3}\n",
                            "-n",
                            "300",
                            "--json"};
    int whole = 0;
    for (const Words& how : {Words{"--temp", "0"}, Words{"--temp", "0.8", "--seed", "1"},
                             Words{"--temp", "0.8", "--seed", "2", "--top-k", "40"}}) {
        std::vector<Json> answers;
        for (const Words& drafter :
             {Words{"--draft", "none"}, Words{"--draft", "suffix"}, Words{"--draft", "mtp"},
              Words{"--draft", "dflash", "--dflash", kBundledDraft}, Words{}}) {
            Words all = how;
            all.insert(all.end(), drafter.begin(), drafter.end());
            answers.push_back(json_of(run_with(generate, all)));
            EXPECT_EQ(answers.back()["tokens"], answers[0]["tokens"]) << drafter.size();
            EXPECT_EQ(answers.back()["text"], answers[0]["text"]) << drafter.size();
        }
        const std::string text = answers[0]["text"];
        EXPECT_EQ(is_object(text), answers[0]["finish"] == "stop") << text;
        whole += is_object(text) ? 1 : 0;
    }
    EXPECT_GT(whole, 0);
}

TEST(ResponseFormat, every_answer_of_a_chat_is_an_object_of_its_own) {
    int whole = 0;
    for (const char* seed : {"1", "2", "3"}) {
        RunOptions options;
        options.input = "Write JSON.\nWrite it again.\n";
        const Ran both = run_strata({"chat", "-m", kBundledModel, "-n", "300", "--temp", "0.8",
                                     "--seed", seed, "--response-format", "json_object"},
                                    options);
        EXPECT_EQ(both.status, 0);
        // Answers that are not cut are two values, one after the other.
        std::istringstream answers(both.out);
        Json first(Json::value_t::discarded);
        Json second(Json::value_t::discarded);
        try {
            answers >> first >> second;
        } catch (const Json::exception&) {
            EXPECT_NE(both.err, "") << both.out;
            continue;
        }
        EXPECT_EQ(both.err, "");
        EXPECT_TRUE(first.is_object() && second.is_object()) << both.out;
        ++whole;
    }
    EXPECT_GT(whole, 0);
}

TEST(ResponseFormat, an_object_that_is_cut_is_told_of_and_one_that_is_whole_is_not) {
    const std::string prompt = "Two points, {\"x\": 1, \"y\": 2} and ";
    const Words chat = {"chat", "-m", kBundledModel, "-p", prompt, "--temp", "0"};
    const Words generate = {"generate", "-m", kBundledModel, "-p", prompt, "--temp", "0"};
    for (const Words& words : {chat, generate}) {
        const Ran cut = run_with(words, {"-n", "1"});
        EXPECT_EQ(cut.status, 0);
        EXPECT_EQ(cut.err, "the JSON object is not whole: -n ended it after 1 token\n");
        const Ran whole = run_with(words, {"-n", "300"});
        expect_done(whole);
        EXPECT_TRUE(is_object(whole.out)) << whole.out;
    }
    Words thinking = chat;
    thinking.push_back("--think");
    EXPECT_NE(run_with(thinking, {"-n", "2"}).err.find("after 2 tokens"), std::string::npos);
    const Ran full = run_with(generate, {"-c", "21"});
    EXPECT_EQ(full.status, 0);
    EXPECT_NE(full.err.find("not whole: a full context ended it after "), std::string::npos)
        << full.err;
    // To a conversation a full context is an error besides.
    const Ran ended = run_with(chat, {"-c", "40"});
    EXPECT_EQ(ended.status, 1);
    EXPECT_NE(ended.err.find("not whole: a full context ended it after "), std::string::npos)
        << ended.err;
    EXPECT_NE(ended.err.find("the context is full"), std::string::npos) << ended.err;
    // What has the finish already, or is free, has no line.
    expect_done(run_with(generate, {"-n", "1", "--json"}));
    Words free = generate;
    free.insert(free.end(), {"-n", "1"});
    expect_done(run_strata(free));
}

TEST(ResponseFormat, what_cannot_be_held_to_a_format_is_refused) {
    const Words generate = {"generate", "-m", tiny().path(), "--tokens", "1,2"};
    expect_failed(run_with(generate, {}), "has no tokenizer");
    expect_wrong_use(run_with(generate, {"--ignore-eos"}), "one of the two is wanted");
    Words unknown = generate;
    unknown.insert(unknown.end(), {"--response-format", "json"});
    expect_wrong_use(run_strata(unknown), "'json' is none of text, json_object");
}

}  // namespace
}  // namespace strata::test
