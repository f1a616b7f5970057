// A draft with an embedding and a head of its own.
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
    expect_failed(add_head(output, {"--type", "mxfp4"}), "mxfp4");
    expect_failed(add_head(output, {}, "tiny"), "width is 128, wanted the target's 96");
    expect_failed(run_strata({"dflash-head", odd().path(), "--target", odd().path(), "-o", output}),
                  "wanted a draft");
    expect_failed(add_head(draft_of("odd")), "is a file of the input");
    EXPECT_TRUE(directory.names().empty());
}

}  // namespace
}  // namespace strata::test
