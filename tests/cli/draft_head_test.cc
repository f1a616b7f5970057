// Drafters with heads of their own.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/cli/expect.h"
#include "tests/cli/models.h"
#include "tests/cli/run_binary.h"

namespace strata::test {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

Ran add_head(const std::string& output, const Words& more = {}, const std::string& draft = "odd") {
    Words words = {"dflash-head", draft_of(draft), "--target", odd().path(), "-o", output};
    words.insert(words.end(), more.begin(), more.end());
    return run_strata(words);
}

Json guesses_of(const std::string& draft) {
    return json_of(run_strata({"draft", "-m", odd().path(), "--dflash", draft, "--tokens",
                               "5,6,7,8,9,10", "--anchor", "11", "--json"}));
}

TEST(DflashHeadCommand, a_draft_with_a_head_of_its_own_guesses_as_with_the_targets) {
    const TempDir directory;
    const std::string output = directory / "d.gguf";
    expect_done(add_head(output, {"--type", "bf16"}));
    EXPECT_EQ(guesses_of(output), guesses_of(draft_of("odd")));
}

TEST(DflashHeadCommand, a_draft_vocabulary_that_holds_the_candidates_changes_no_guess) {
    const TempDir directory;
    const std::string output = directory / "d.gguf";
    const Json want = guesses_of(draft_of("odd"));
    std::set<std::int32_t> tokens;
    for (const Json& row : want["candidates"]) tokens.insert(row.begin(), row.end());
    std::vector<std::int32_t> falling(tokens.rbegin(), tokens.rend());
    expect_done(add_head(output, {"--type", "bf16", "--draft-vocab", list_text(falling)}));
    EXPECT_EQ(guesses_of(output), want);
    // Without the first choice of the first row another token is guessed, one of the list.
    std::erase(falling, want["path"][0].get<std::int32_t>());
    expect_done(add_head(output, {"--type", "bf16", "--draft-vocab", list_text(falling)}));
    const Json other = guesses_of(output);
    EXPECT_NE(other["path"][0], want["path"][0]);
    for (const std::int32_t token : other["path"]) EXPECT_TRUE(tokens.contains(token)) << token;
}

TEST(DflashHeadCommand, a_head_is_replaced_and_its_type_is_the_one_asked_for) {
    const TempDir directory;
    const std::string small = directory / "small.gguf";
    const std::string again = directory / "again.gguf";
    expect_done(add_head(small, {"--draft-vocab", "9,8,7,6,5,4,3,2,1"}));
    expect_done(run_strata({"dflash-head", small, "--target", odd().path(), "-o", again}));
    const auto tensors = [](const std::string& path) {
        std::map<std::string, Json> all;
        const Json seen = json_of(run_strata({"inspect", path, "--tensors", "--json"}));
        for (const Json& tensor : seen["tensors"]) all[tensor["name"]] = tensor;
        return all;
    };
    EXPECT_EQ(tensors(small).at("output.weight")["type"], "Q8_0");
    EXPECT_EQ(tensors(small).at("output.weight")["shape"], (Json{96, 9}));
    EXPECT_EQ(tensors(small).at("d2t")["type"], "I64");
    EXPECT_EQ(tensors(again).at("output.weight")["shape"], (Json{96, 900}));
    EXPECT_FALSE(tensors(again).contains("d2t"));
}

TEST(DflashHeadCommand, wrong_use_and_bad_input_leave_no_file) {
    const TempDir directory;
    const std::string output = directory / "d.gguf";
    expect_wrong_use(run_strata({"dflash-head", draft_of("odd"), "-o", output}), "--target");
    expect_wrong_use(add_head(output, {"--draft-vocab", "1,x"}), "token id 2");
    expect_failed(add_head(output, {"--draft-vocab", "1,2,3,4"}),
                  "4 tokens, wanted at least the 5");
    expect_failed(add_head(output, {"--draft-vocab", "1,2,3,4,5,900"}), "token 900");
    expect_failed(add_head(output, {"--draft-vocab", "1,2,3,4,5,3"}), "token 3 twice");
    expect_failed(add_head(output, {"--type", "q4_k"}), "rows of 96 values");
    expect_wrong_use(add_head(output, {"--type", "mxfp4"}), "mxfp4");
    expect_failed(add_head(output, {}, "tiny"), "width is 128, wanted the target's 96");
    expect_failed(run_strata({"dflash-head", odd().path(), "--target", odd().path(), "-o", output}),
                  "wanted a draft");
    expect_failed(add_head(draft_of("odd")), "is a file of the input");
    EXPECT_TRUE(directory.names().empty());
}

Ran add_mtp_head(const std::string& layer, const std::string& output, const Words& more = {}) {
    Words words = {"mtp-head", layer, "--target", odd().path(), "-o", output};
    words.insert(words.end(), more.begin(), more.end());
    return run_strata(words);
}

Json chain_of(const std::string& layer) {
    return json_of(run_strata({"draft", "-m", odd().path(), "--mtp", layer, "--tokens",
                               "5,6,7,8,9,10", "--anchor", "11", "--rows", "8", "--json"}));
}

TEST(MtpHeadCommand, a_layer_with_a_head_of_its_own_guesses_as_with_the_models) {
    const TempDir directory;
    const Json want = chain_of(odd().path());
    const std::string whole = directory / "whole.gguf";
    expect_done(add_mtp_head(odd().path(), whole, {"--type", "bf16"}));
    EXPECT_EQ(chain_of(whole), want);
    // Of the layer's own file again, with the chain's tokens alone: the same path, surer.
    const std::string some = directory / "some.gguf";
    std::set<std::int32_t> tokens(want["path"].begin(), want["path"].end());
    const auto list = [&] { return list_text(std::vector(tokens.rbegin(), tokens.rend())); };
    expect_done(add_mtp_head(whole, some, {"--type", "bf16", "--draft-vocab", list()}));
    const Json sure = chain_of(some);
    EXPECT_EQ(sure["path"], want["path"]);
    EXPECT_GT(sure["confidence"][0], want["confidence"][0]);
    // Without the first choice another of the list is guessed.
    tokens.erase(want["path"][0].get<std::int32_t>());
    tokens.insert(1);
    expect_done(add_mtp_head(odd().path(), some, {"--draft-vocab", list()}));
    const Json other = chain_of(some);
    for (const Json& token : other["path"]) EXPECT_TRUE(tokens.contains(token)) << token;
}

TEST(MtpHeadCommand, a_draft_vocabulary_changes_no_text) {
    const TempDir directory;
    const std::string layer = directory / "l.gguf";
    std::vector<std::int32_t> even;
    for (std::int32_t token = 0; token < 900; token += 2) even.push_back(token);
    expect_done(add_mtp_head(odd().path(), layer, {"--draft-vocab", list_text(even)}));
    for (const Words& sampling : {Words{"--temp", "0"}, Words{"--temp", "1", "--seed", "4"}}) {
        Words words = {"eval", "lossless", "-m",     odd().path(), "--mtp",
                       layer,  "--draft",  "mtp",    "--prompts",  "2",
                       "-n",   "12",       "--spec", "2,8",        "--prompt-tokens",
                       "9",    "--json"};
        words.insert(words.end(), sampling.begin(), sampling.end());
        const Json found = json_of(run_strata(words));
        EXPECT_EQ(found["different"], 0);
        EXPECT_GT(found["drafted"], 0);
    }
}

TEST(MtpHeadCommand, bad_layers_and_lists_are_refused) {
    const TempDir directory;
    const std::string output = directory / "l.gguf";
    expect_wrong_use(run_strata({"mtp-head", odd().path(), "-o", output}), "--target");
    expect_wrong_use(run_strata({"mtp-head", odd().path(), "--target", odd().path(), "-o", output,
                                 "--type", "q9_9"}),
                     "q9_9");
    expect_failed(add_mtp_head(odd().path(), output, {"--draft-vocab", "1,900"}), "token 900");
    expect_failed(add_mtp_head(odd().path(), output, {"--draft-vocab", "3,1,3"}), "token 3 twice");
    expect_failed(add_mtp_head(tiny().path(), output), "wanted the model's 96");
    expect_failed(add_mtp_head(draft_of("odd"), output), "dflash");
    expect_failed(add_mtp_head(odd().path(), odd().path()), "is a file of the input");
    EXPECT_TRUE(directory.names().empty());
}

}  // namespace
}  // namespace strata::test
