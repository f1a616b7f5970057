#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/cli/expect.h"
#include "tests/cli/models.h"
#include "tests/cli/run_binary.h"
#include "tests/golden/golden.h"

namespace strata::test {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

Ran generate(const std::string& model, const Words& more, const RunOptions& options = {}) {
    Words words = {"generate", "-m", model};
    words.insert(words.end(), more.begin(), more.end());
    return run_strata(words, options);
}

Words keys_of(const Json& object) {
    Words keys;
    for (const auto& [key, value] : object.items()) keys.push_back(key);
    return keys;
}

TEST(Generate, json_has_the_keys_that_scripts_rely_on) {
    const Json json = json_of(generate(
        talking().path(), {"-p", "hello", "-n", "5", "--temp", "0", "--ignore-eos", "--json"}));
    EXPECT_EQ(keys_of(json), (Words{"prompt_tokens", "tokens", "text", "finish", "seed", "timings",
                                    "draft", "context", "memory"}));
    EXPECT_EQ(keys_of(json["memory"]),
              (Words{"weights", "state", "workspace", "drafter", "reserve", "checkpoints"}));
    EXPECT_EQ(keys_of(json["timings"]),
              (Words{"load_ms", "prompt_ms", "prompt_tps", "decode_ms", "decode_tps"}));
    EXPECT_EQ(keys_of(json["draft"]),
              (Words{"kind", "windows", "drafted", "accepted", "accepted_by_position", "draft_ms",
                     "verify_ms", "by_drafter"}));
    EXPECT_EQ(json["prompt_tokens"], 3);  // he ll o
    EXPECT_EQ(json["tokens"].size(), 5U);
    EXPECT_EQ(json["finish"], "length");
    EXPECT_TRUE(json["text"].is_string());
    for (const auto& [key, value] : json["timings"].items()) {
        EXPECT_TRUE(value.is_number() && value.get<double>() > 0) << key;
    }
    EXPECT_TRUE(json["draft"]["accepted_by_position"].is_array());
    EXPECT_EQ(keys_of(json["draft"]["by_drafter"]), (Words{"none", "suffix", "mtp"}));
    const Json plain = json_of(generate(talking().path(), {"-p", "hello", "-n", "5", "--temp", "0",
                                                           "--draft", "none", "--json"}))["draft"];
    EXPECT_EQ(plain["kind"], "none");
    EXPECT_EQ(plain["windows"], 4);
    EXPECT_EQ(plain["drafted"], 0);
    EXPECT_EQ(plain["accepted"], 0);
    EXPECT_FALSE(plain.contains("by_drafter"));
}

TEST(Generate, streamed_text_is_the_text_of_json_and_a_line_end) {
    const Words words = {"-p", "hello", "-n", "48", "--temp", "0.9", "--seed", "3"};
    Words json = words;
    json.push_back("--json");
    const Ran streamed = generate(talking().path(), words);
    expect_done(streamed);
    const std::string text = json_of(generate(talking().path(), json))["text"];
    EXPECT_GT(text.size(), 20U);
    EXPECT_EQ(streamed.out, text + "\n");
}

TEST(Generate, the_prompt_is_the_same_from_text_file_and_standard_input) {
    const std::string path = talking().directory() / "prompt";
    write_file(path, "say it\n");
    const Words rest = {"-n", "4", "--temp", "0", "--json"};
    std::vector<Json> tokens;
    for (const Words& source : {Words{"-p", "say it\n"}, Words{"-f", path}, Words{"-f", "-"}}) {
        Words words = source;
        words.insert(words.end(), rest.begin(), rest.end());
        RunOptions options;
        options.input = "say it\n";
        tokens.push_back(json_of(generate(talking().path(), words, options))["tokens"]);
    }
    EXPECT_EQ(tokens[0], tokens[1]);
    EXPECT_EQ(tokens[0], tokens[2]);
}

TEST(Generate, control_tokens_in_the_text_are_text_unless_asked_for) {
    const Words words = {"-p", "<|im_end|>", "-n", "1", "--temp", "0", "--json"};
    Words special = words;
    special.push_back("--special");
    EXPECT_GT(json_of(generate(talking().path(), words))["prompt_tokens"], 1);
    EXPECT_EQ(json_of(generate(talking().path(), special))["prompt_tokens"], 1);
}

TEST(Generate, a_list_of_tokens_may_lie_in_a_file) {
    const std::string path = tiny().directory() / "ids";
    write_file(path, "1,2\n3\n");
    const Words rest = {"-n", "4", "--temp", "0", "--json"};
    Words listed = {"--tokens", "1,2,3"};
    Words filed = {"--tokens", std::string("@").append(path)};
    listed.insert(listed.end(), rest.begin(), rest.end());
    filed.insert(filed.end(), rest.begin(), rest.end());
    EXPECT_EQ(json_of(generate(tiny().path(), listed))["tokens"],
              json_of(generate(tiny().path(), filed))["tokens"]);
}

// SAMP-06, SAMP-09
TEST(Generate, the_seed_that_is_printed_gives_the_run_again) {
    const Words words = {"--tokens", "1,2,3", "-n", "24", "--temp", "1", "--json"};
    const Json first = json_of(generate(tiny().path(), words));
    Words again = words;
    again.insert(again.end(), {"--seed", std::to_string(first["seed"].get<std::uint64_t>())});
    const Json second = json_of(generate(tiny().path(), again));
    EXPECT_EQ(first["tokens"], second["tokens"]);
    EXPECT_EQ(first["seed"], second["seed"]);
    again.back() = "18446744073709551615";
    const Json third = json_of(generate(tiny().path(), again));
    EXPECT_EQ(third["seed"], UINT64_MAX);
    EXPECT_NE(first["tokens"], third["tokens"]);
}

TEST(Generate, neither_threads_nor_chunks_change_a_token) {
    const std::string ids = list_text(Golden::load("tiny").ints("long.ids"));
    const Words words = {"--tokens", ids, "-n", "16", "--json", "--temp", "1", "--seed", "11"};
    const Json want = json_of(generate(tiny().path(), words))["tokens"];
    for (const Words& how :
         {Words{"--threads", "1"}, Words{"--threads", "2"}, Words{"--threads", "5"},
          Words{"--chunk", "1"}, Words{"--chunk", "7"}, Words{"--chunk", "64"}}) {
        Words other = words;
        other.insert(other.end(), how.begin(), how.end());
        EXPECT_EQ(json_of(generate(tiny().path(), other))["tokens"], want) << how[0] << how[1];
    }
}

TEST(Generate, an_end_token_ends_the_text_unless_ignored) {
    const Golden golden = Golden::load("tiny");
    const auto greedy = golden.ints("one.greedy");
    const std::string end = std::to_string(greedy[2]);
    const Model model("tiny", R"({"eos_token_id": [7, )" + end + "]}");
    Words words = {"--tokens", list_text(golden.ints("one.ids")), "-n", "6", "--json"};
    const Json ended = json_of(generate(model.path(), words));
    EXPECT_EQ(ended["tokens"], Json({greedy[0], greedy[1], greedy[2]}));
    EXPECT_EQ(ended["finish"], "stop");
    words.push_back("--ignore-eos");
    const Json went_on = json_of(generate(model.path(), words));
    EXPECT_EQ(went_on["tokens"].size(), 6U);
    EXPECT_EQ(went_on["finish"], "length");
}

TEST(Generate, the_files_sampling_holds_until_an_option_says_otherwise) {
    const Golden golden = Golden::load("tiny");
    const Model model("tiny", R"({"eos_token_id": 7, "temperature": 5.0})");
    const Words words = {"--tokens", list_text(golden.ints("one.ids")), "-n", "8", "--json"};
    const auto with = [&](const Words& more) {
        Words all = words;
        all.insert(all.end(), more.begin(), more.end());
        return json_of(generate(model.path(), all))["tokens"];
    };
    EXPECT_NE(with({"--seed", "1"}), with({"--seed", "2"}));
    EXPECT_EQ(with({"--temp", "0", "--seed", "1"}), with({"--temp", "0", "--seed", "2"}));
    EXPECT_EQ(with({"--top-k", "1", "--seed", "1"}), with({"--temp", "0"}));
}

TEST(Generate, text_ends_before_a_stop_string) {
    const Words words = {"-p", "hello", "-n", "48", "--temp", "0.9", "--seed", "3", "--json"};
    const std::string text = json_of(generate(talking().path(), words))["text"];
    ASSERT_GT(text.size(), 24U);
    // From the middle of one character run to another, so that it crosses tokens.
    const std::string stop = text.substr(9, 7);
    Words stopped = words;
    stopped.insert(stopped.end(), {"--stop", "never\n\n", "--stop", stop});
    const Json json = json_of(generate(talking().path(), stopped));
    EXPECT_EQ(json["text"], text.substr(0, text.find(stop)));
    EXPECT_EQ(json["finish"], "stop");
    stopped.erase(std::find(stopped.begin(), stopped.end(), "--json"));
    EXPECT_EQ(generate(talking().path(), stopped).out, text.substr(0, text.find(stop)) + "\n");
}

TEST(Generate, no_tokens_may_be_asked_for) {
    const Json json = json_of(generate(tiny().path(), {"--tokens", "1", "-n", "0", "--json"}));
    EXPECT_EQ(json["tokens"], Json::array());
    EXPECT_EQ(json["finish"], "length");
}

TEST(Generate, text_ends_where_the_context_does) {
    const Json json = json_of(generate(
        tiny().path(), {"--tokens", "1,2,3", "-c", "8", "--ignore-eos", "--json", "--temp", "0"}));
    EXPECT_EQ(json["finish"], "length");
    // The last of them needs no room: nothing is run after it.
    EXPECT_EQ(json["tokens"].size(), 6U);
}

TEST(Generate, temperatures_from_tiny_to_huge_give_tokens) {
    for (const char* temperature : {"0", "-0", "1e-300", "1e-8", "1e-3", "1", "1e6"}) {
        const Json json = json_of(generate(tiny().path(), {"--tokens", "1,2,3", "-n", "3", "--temp",
                                                           temperature, "--ignore-eos", "--json"}));
        EXPECT_EQ(json["tokens"].size(), 3U) << temperature;
    }
}

TEST(Generate, drafting_changes_the_windows_and_never_the_text) {
    const Words words = {"--tokens", "5,6,7,8,5,6,7", "-n", "40", "--ignore-eos", "--json"};
    // Every width with every drafter and both draws: the engine's own tests.
    for (const auto& [temperature, rows] : {std::pair("0", "2"), std::pair("0.9", "16")}) {
        const auto drafted = [&](const Words& more) {
            Words all = words;
            all.insert(all.end(), {"--temp", temperature, "--seed", "4"});
            all.insert(all.end(), more.begin(), more.end());
            return json_of(generate(tiny().path(), all));
        };
        const Json plain = drafted({"--draft", "none"});
        EXPECT_EQ(plain["draft"]["windows"], 39);
        for (const char* kind : {"suffix", "mtp", "joined", "auto"}) {
            const Json got = drafted({"--draft", kind, "--spec", rows});
            EXPECT_EQ(got["tokens"], plain["tokens"]) << kind << ' ' << rows;
            if (std::string_view(kind) == "suffix" || std::string_view(kind) == "mtp") {
                EXPECT_EQ(got["draft"]["kind"], kind);
            }
            EXPECT_EQ(got["draft"]["windows"].get<int>() + got["draft"]["accepted"].get<int>(), 39);
        }
    }
}

TEST(Generate, a_draft_that_another_guesses_for_is_held_to_the_model_all_the_same) {
    const Words words = {"--tokens", "1,2,3", "-n", "3", "--temp", "0", "--draft"};
    const auto run = [&](const char* kind, const char* option, const std::string& file) {
        Words all = words;
        all.insert(all.end(), {kind, option, file});
        return generate(tiny().path(), all);
    };
    for (const char* kind : {"none", "suffix", "mtp"}) {
        expect_done(run(kind, "--dflash", draft_of("tiny")));
        expect_failed(run(kind, "--dflash", draft_of("odd")), "width is 96");
        expect_failed(run(kind, "--dflash", tiny().path()), "wanted a draft");
        expect_failed(run(kind, "--dflash", "none.gguf"), "none.gguf");
    }
    expect_done(run("none", "--mtp", tiny().path()));
    expect_failed(run("suffix", "--mtp", odd().path()), "width is 96, wanted the model's 128");
    expect_failed(run("suffix", "--mtp", draft_of("tiny")), "dflash");
}

TEST(Generate, a_dump_that_no_row_came_to_leaves_no_file) {
    const TempDir directory;
    const Words words = {"--tokens",
                         "1,2,3",
                         "-n",
                         "3",  //
                         "--dump-features",
                         directory / "rows",
                         "--dump-layers",
                         "0",
                         "--dump-residual"};
    for (const std::uint64_t bytes : {4, 500, 2000}) {  // .json, .f16 and .res are larger
        RunOptions options;
        options.file_bytes_max = bytes;
        expect_failed(generate(tiny().path(), words, options), "cannot write");
        EXPECT_TRUE(directory.names().empty()) << bytes;
    }
    expect_done(generate(tiny().path(), words));
    EXPECT_EQ(directory.names().size(), 4U);
}

TEST(Generate, paths_are_bytes_in_any_locale) {
    const TempDir directory;
    const std::string path = directory / "a b 模型 \"x\" 'y'\n🦙.gguf";
    std::filesystem::copy_file(tiny().path(), path);
    for (const char* locale : {"C", "ja_JP.SJIS", "de_DE.UTF-8"}) {
        RunOptions options;
        options.environment["LC_ALL"] = locale;
        const Json json = json_of(
            generate(path, {"--tokens", "1,2,3", "-n", "3", "--temp", "0.5", "--json"}, options));
        EXPECT_EQ(json["prompt_tokens"], 3);
    }
    expect_failed(generate(path + ".missing", {"--tokens", "1"}), "\\x0a🦙.gguf.missing");
}

}  // namespace
}  // namespace strata::test
