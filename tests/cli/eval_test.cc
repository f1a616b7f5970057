// strata eval on a model of random weights and on the bundled one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "base/text.h"
#include "tests/cli/expect.h"
#include "tests/cli/models.h"
#include "tests/cli/run_binary.h"

namespace strata::test {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

const std::string kText =
    "The quick brown fox jumps over the lazy dog, and the dog looks after it for a while.\n";

Ran perplexity(const std::string& model, const Words& more = {}) {
    Words words = {"eval", "perplexity", "-m", model};
    words.insert(words.end(), more.begin(), more.end());
    return run_strata(words, {.input = kText});
}

Ran agreement(const std::string& model, const std::string& against, const Words& more = {}) {
    Words words = {"eval", "agreement", "-m", model, "--against", against};
    words.insert(words.end(), more.begin(), more.end());
    return run_strata(words, {.input = kText});
}

// A random model of byte tokens, and the same in 4 bits.
class EvalCommand : public ::testing::Test {
  protected:
    EvalCommand() {
        expect_done(run_strata({"synth", model_, "--preset", "tiny"}));
        expect_done(run_strata({"quantize", model_, small_, "--type", "q4_0"}));
    }
    TempDir directory_;
    std::string model_ = directory_ / "m.gguf";
    std::string small_ = directory_ / "q.gguf";
};

TEST_F(EvalCommand, perplexity_is_what_the_logits_say) {
    const Json found = json_of(perplexity(model_, {"-f", "-", "--json"}));
    const auto bytes = static_cast<double>(kText.size());
    EXPECT_EQ(found["tokens"], kText.size());
    EXPECT_EQ(found["window"], 512);
    const double nats = found["nats_per_token"];
    EXPECT_GT(nats, 1);
    EXPECT_GT(found["nats_per_token_error"], 0);
    EXPECT_NEAR(found["perplexity"].get<double>(), std::exp(nats), 1e-9 * std::exp(nats));
    EXPECT_NEAR(found["bits_per_byte"].get<double>(), nats / std::log(2.0) * (bytes - 1) / bytes,
                1e-9);
    EXPECT_EQ(json_of(perplexity(model_, {"-f", "-", "--json", "-t", "1", "--chunk", "7"})), found);
    const Ran table = perplexity(model_, {"-f", "-", "-c", "16"});
    expect_done(table);
    EXPECT_NE(table.out.find("windows of 16"), std::string::npos) << table.out;
}

TEST_F(EvalCommand, agreement_is_whole_with_itself_and_less_with_fewer_bits) {
    const Json same = json_of(agreement(model_, model_, {"-f", "-", "--json"}));
    EXPECT_EQ(same["mean_kl"], 0);
    EXPECT_EQ(same["largest_kl"], 0);
    EXPECT_EQ(same["top1_agreement"], 1);
    const Json less = json_of(agreement(small_, model_, {"-f", "-", "--json"}));
    EXPECT_GT(less["mean_kl"], 0);
    EXPECT_GE(less["largest_kl"], less["mean_kl"]);
    EXPECT_LE(less["top1_agreement"], 1);
    EXPECT_LT(less["largest_kl_position"], kText.size());
    const Json cached = json_of(
        agreement(model_, model_, {"-f", "-", "--kv", "q8_0", "--against-kv", "f16", "--json"}));
    EXPECT_GT(cached["mean_kl"], 0);
    EXPECT_LT(cached["mean_kl"], less["mean_kl"]);
    const Json chunked = json_of(agreement(
        model_, model_,
        {"-f", "-", "--prompt-form", "chunked", "--against-prompt-form", "recurrent", "--json"}));
    EXPECT_GT(chunked["mean_kl"], 0);
    EXPECT_LT(chunked["mean_kl"], cached["mean_kl"]);
    EXPECT_GE(chunked["largest_margin"], 0);
    EXPECT_LE(chunked["largest_margin"], less["largest_margin"]);
    const Ran table = agreement(small_, model_, {"-f", "-"});
    expect_done(table);
    EXPECT_NE(table.out.find("\nlargest margin "), std::string::npos) << table.out;
    // No machine has so many devices.
    expect_failed(agreement(model_, model_, {"-f", "-", "--against-device", "cuda:1023"}), "CUDA");
}

TEST_F(EvalCommand, importance_changes_how_a_model_is_quantized) {
    const std::string sums = directory_ / "i.gguf";
    const Words gather = {"eval", "importance", "-m", model_, "-f", "-", "-o", sums, "--json"};
    const Json found = json_of(run_strata(gather, {.input = kText}));
    EXPECT_EQ(found["tokens"], kText.size());
    EXPECT_GT(found["matrices"], found["tensors"]);
    const std::string weighted = directory_ / "w.gguf";
    expect_done(run_strata({"quantize", model_, weighted, "--type", "q4_0", "--importance", sums}));
    EXPECT_GT(json_of(agreement(weighted, small_, {"-f", "-", "--json"}))["mean_kl"], 0);
    // A model is not written over.
    expect_failed(
        run_strata({"eval", "importance", "-m", model_, "-f", "-", "-o", model_}, {.input = kText}),
        "another name");
    expect_wrong_use(run_strata({"eval", "importance", "-m", model_, "-f", "-"}), "--output");
}

TEST_F(EvalCommand, wrong_use) {
    expect_wrong_use(run_strata({"eval"}), "strata eval --help");
    expect_wrong_use(run_strata({"eval", "speed"}), "");
    expect_wrong_use(run_strata({"eval", "perplexity", "-m", model_}), "--file");
    expect_wrong_use(run_strata({"eval", "perplexity", "-f", "-"}),
                     "strata eval perplexity --help");
    expect_wrong_use(run_strata({"eval", "agreement", "-m", model_, "-f", "-"}), "--against");
    expect_wrong_use(perplexity(model_, {"-f", "-", "-c", "1"}), "--context");
    expect_wrong_use(perplexity(model_, {"-f", "-", "--against", model_}), "--against");
    expect_wrong_use(agreement(model_, model_, {"-f", "-", "--against-device", "gpu"}), "gpu");
    expect_wrong_use(run_strata({"eval", "lossless", "-m", model_, "--draft", "none"}), "suffix");
    for (const char* command : {"perplexity", "agreement"}) {
        const Ran help = run_strata({"eval", command, "--help"});
        expect_done(help);
        EXPECT_NE(help.out.find(std::string("strata eval ") + command), std::string::npos);
    }
}

TEST_F(EvalCommand, bad_input) {
    write_file(directory_ / "empty", "");
    expect_failed(perplexity(model_, {"-f", directory_ / "none"}), "none");
    expect_failed(perplexity(model_, {"-f", directory_ / "empty"}), "0 tokens");
    expect_failed(perplexity(directory_ / "none", {"-f", "-"}), "none");
    expect_failed(perplexity(tiny().path(), {"-f", "-"}), "no tokenizer");
    expect_failed(perplexity(model_, {"-f", "-", "-c", "513"}), "512");
    expect_failed(agreement(model_, directory_ / "none", {"-f", "-"}), "none");
    expect_failed(agreement(model_, tiny().path(), {"-f", "-"}), "tokenizer");
}

TEST(BundledModel, predicts_english_far_better_than_chance_and_agrees_with_itself) {
    const Json found = json_of(perplexity(kBundledModel, {"-f", "-", "--json"}));
    EXPECT_LT(found["bits_per_byte"], 4);
    EXPECT_EQ(json_of(agreement(kBundledModel, kBundledModel, {"-f", "-", "--json"}))["mean_kl"],
              0);
}

// SPEC-19: what drafting gains is told of a text that is given, with what was right at each place.
TEST_F(EvalCommand, drafters_are_tried_beside_plain_decoding_and_change_no_text) {
    const std::string code = directory_ / "code.txt";
    write_file(code, kText + kText);
    const Json found = json_of(run_strata({"eval", "acceptance", "-m", model_, "-f", "code=" + code,
                                           "--prompts", "2", "--prompt-tokens", "40", "-n", "12",
                                           "--draft", "suffix", "--spec", "2,5", "--json"}));
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0]["draft"], "none");
    EXPECT_EQ(found[0]["windows"], 2 * 11);
    EXPECT_EQ(found[0]["tokens"], 2 * 12);
    EXPECT_EQ(found[2]["draft"], "suffix");
    EXPECT_EQ(found[2]["rows"], 5);
    for (const Json& trial : found) {
        EXPECT_EQ(trial["kind"], "code");
        EXPECT_EQ(trial["different"], 0);
        const auto right = trial["accepted_by_position"].get<std::vector<int>>();
        EXPECT_EQ(std::accumulate(right.begin(), right.end(), 0), trial["accepted"]);
        EXPECT_TRUE(std::is_sorted(right.rbegin(), right.rend()));
        EXPECT_LT(right.size(), trial.value("rows", 1U));
        EXPECT_DOUBLE_EQ(trial["tokens_per_window"],
                         (trial["tokens"].get<double>() - 2) / trial["windows"].get<double>());
        // Every window gives one token beside the guesses that were right.
        EXPECT_EQ(trial["tokens"].get<int>() - 2,
                  trial["windows"].get<int>() + trial["accepted"].get<int>());
    }
}

TEST_F(EvalCommand, questions_are_asked_in_the_chat_form) {
    write_file(directory_ / "questions.txt", "what is tar?\n\nwhat does grep do?\n");
    const Words words = {"eval",
                         "acceptance",
                         "-m",
                         kBundledModel,
                         "--draft",
                         "suffix",
                         "-n",
                         "24",
                         "--json",
                         "-t",
                         "1",
                         "--questions",
                         "chat=" + directory_ / "questions.txt"};
    const auto asked = [&](const std::string& prompts) {
        Words all = words;
        all.insert(all.end(), {"--prompts", prompts});
        return run_strata(all);
    };
    std::size_t wanted = 0;
    for (const char* question : {"what is tar?", "what does grep do?"}) {
        const Json answer = json_of(
            run_strata({"generate", "-m", kBundledModel, "--special", "-n", "24", "--json", "-p",
                        concat("<|im_start|>user\n", question,
                               "<|im_end|>\n<|im_start|>assistant\n"
                               "<think>\n\n</think>\n\n")}));
        EXPECT_EQ(answer["finish"], "stop");
        wanted += answer["tokens"].size();
    }
    const Json found = json_of(asked("2"));
    EXPECT_EQ(found[0]["kind"], "chat");
    EXPECT_EQ(found[0]["tokens"], wanted);
    expect_failed(asked("3"), "has 2 questions, one a line, wanted at least 3");
}

// 31 windows when the draft was made; 64 are a third of the tokens guessed.
TEST_F(EvalCommand, the_bundled_draft_guesses_its_target_and_changes_no_text) {
    Words words = {"generate", "-m", kBundledModel, "-p", "def ", "-n", "96", "-t", "1", "--json"};
    const Json plain = json_of(run_strata(words));
    words.insert(words.end(), {"--dflash", kBundledDraft, "--draft", "dflash", "--spec", "8",
                               "--spec-min-p", "0"});
    const Json drafted = json_of(run_strata(words));
    EXPECT_EQ(drafted["tokens"], plain["tokens"]);
    EXPECT_EQ(drafted["draft"]["kind"], "dflash");
    EXPECT_LT(drafted["draft"]["windows"].get<int>() * 3, 96 * 2);
}

// SPEC-17
TEST_F(EvalCommand, drawn_texts_are_the_same_with_every_drafter) {
    const std::string model = directory_ / "mtp.gguf";
    expect_done(run_strata({"synth", model, "--preset", "tiny", "--mtp"}));
    const Json found = json_of(run_strata({"eval", "lossless", "-m", model, "--prompts", "2", "-n",
                                           "8", "--prompt-tokens", "8", "--spec", "3,16", "--temp",
                                           "1", "--seed", "3", "--kv", "q8_0", "--json"}));
    EXPECT_EQ(found["different"], 0);
    EXPECT_GT(found["drafted"], 0);
}

TEST_F(EvalCommand, shards_share_the_texts_of_given_prompts) {
    write_file(directory_ / "p.jsonl",
               "{\"kind\": \"a\", \"prompt\": \"over the dog, over the dog\"}\n"
               "{\"kind\": \"b\", \"prompt\": \"lazy\"}\n");
    const auto run = [&](const std::string& shard) {
        return run_strata({"eval", "lossless", "-m", model_, "--prompt-file",
                           directory_ / "p.jsonl", "--spec", "2,4,6,8,16", "-n", "6", "--draft",
                           "suffix", "--shard", shard, "--json"});
    };
    Json sum = {{"texts", 0}, {"drafted", 0}, {"accepted", 0}, {"different", 0}};
    for (const char* shard : {"1/3", "2/3", "3/3"}) {
        const Json part = json_of(run(shard));
        EXPECT_GE(part["texts"], 3);
        for (const auto& [key, value] : part.items()) {
            sum[key] = sum[key].get<int>() + value.get<int>();
        }
    }
    EXPECT_EQ(sum["texts"], 2 * 5);
    EXPECT_EQ(sum, json_of(run("1/1")));
    // Of a kind that has no text in this part nothing is told.
    const Ran part =
        run_strata({"eval", "acceptance", "-m", model_, "--prompt-file", directory_ / "p.jsonl",
                    "-n", "6", "--draft", "suffix", "--shard", "1/2"});
    expect_done(part);
    std::istringstream lines(part.out);
    std::vector<std::string> shown;
    for (std::string line; std::getline(lines, line);) shown.push_back(line);
    ASSERT_EQ(shown.size(), 5u) << part.out;
    EXPECT_NE(shown[2].find("1."), std::string::npos) << part.out;
    EXPECT_EQ(shown[4], "b            suffix     -      -              -        - ") << part.out;
    expect_wrong_use(run("4/3"), "--shard is '4/3'");
    expect_failed(run("11/11"), "part 11 of 11 was asked for, and there are 10 texts");
    write_file(directory_ / "p.jsonl", "{\"kind\": \"a\"}\n");
    expect_failed(run("1/1"), "line 1 of");
    write_file(directory_ / "p.jsonl",
               "{\"kind\": \"a\", \"prompt\": \"x\"}\n"
               "{\"kind\": \"a\", \"prompt\": \"x\", \"question\": \"y\"}\n");
    expect_failed(run("1/1"), concat("line 2 of '", directory_ / "p.jsonl",
                                     "': both 'prompt' and 'question' are given"));
}

TEST_F(EvalCommand, wrong_trials_of_drafters_are_refused) {
    const Words start = {"eval", "acceptance", "-m", model_};
    const auto with = [&](const Words& more) {
        Words words = start;
        words.insert(words.end(), more.begin(), more.end());
        return run_strata(words);
    };
    expect_wrong_use(with({"--draft", "guess"}), "'guess'");
    expect_wrong_use(with({"--spec", "17"}), "17");
    expect_wrong_use(with({"--spec-min-p", "2"}), "--spec-min-p is 2");
    expect_wrong_use(with({"--draft", "dflash"}), "--dflash FILE is wanted");
    expect_failed(with({"--draft", "mtp"}), "MTP");
    write_file(directory_ / "short.txt", "abc");
    expect_failed(with({"-f", directory_ / "short.txt"}), "wanted at least 73");
    expect_failed(with({"--prompt-tokens", "100000"}), "wanted at most the context");
}

TEST_F(EvalCommand, what_a_kind_of_text_is_called_stands_in_one_cell) {
    const auto acceptance = [&](const std::string& kind, const std::string& prompts) {
        return run_strata({"eval", "acceptance", "-m", model_, "-f", kind + "=-", "--prompt-tokens",
                           "8", "--prompts", prompts, "-n", "2", "--draft", "suffix"},
                          {.input = kText});
    };
    const Ran ran = acceptance("\x1b[31mX\x9b", "1");
    expect_done(ran);
    EXPECT_NE(ran.out.find("\\x1b[31mX\\x9b"), std::string::npos) << ran.out;
    expect_failed(acceptance(std::string(101, 'k'), "1"), "has 101 bytes, wanted at most 100");
    expect_failed(acceptance("code", "2000000000"),
                  "2000000000 prompts were asked for, wanted at most 100000");
}

}  // namespace
}  // namespace strata::test
