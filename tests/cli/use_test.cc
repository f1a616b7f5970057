// What the command line takes and refuses, before any model is read.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/expect.h"
#include "tests/cli/run_binary.h"
#include "tests/support/temp_dir.h"

namespace strata::test {
namespace {

using Words = std::vector<std::string>;

const Words kCommands = {"generate", "chat",     "logits", "features", "draft", "convert",
                         "inspect",  "quantize", "synth",  "eval",     "bench"};

TEST(Use, help_names_every_command_and_each_has_its_own) {
    const Ran all = run_strata({"--help"});
    expect_done(all);
    for (const std::string& command : kCommands) {
        EXPECT_NE(all.out.find("\n  " + command), std::string::npos) << command;
        const Ran one = run_strata({command, "--help"});
        expect_done(one);
        EXPECT_NE(one.out.find("strata " + command), std::string::npos) << one.out;
    }
}

TEST(Use, help_fits_a_terminal) {
    for (const std::string& command : kCommands) {
        const std::string help = run_strata({command, "--help"}).out;
        for (std::size_t at = 0; at < help.size();) {
            const std::size_t end = help.find('\n', at);
            EXPECT_LE(end - at, 100U) << help.substr(at, end - at);
            at = end + 1;
        }
    }
}

TEST(Use, the_version_is_one_line) {
    const Ran ran = run_strata({"--version"});
    expect_done(ran);
    EXPECT_EQ(ran.out, "strata " STRATA_VERSION "\n");
}

TEST(Use, commands_and_options_that_are_not_there_are_wrong_use) {
    expect_wrong_use(run_strata({}), "no command is given, wanted one of generate, ");
    expect_wrong_use(run_strata({"eval"}), "no command is given, wanted one of perplexity, ");
    expect_wrong_use(run_strata({"generate", "--jsn"}), "'--jsn' is no option of generate");
    for (const char* command : {"serve", "dflash-head", "bench", "fit", "setup", "calibrate",
                                "doctor", "generat", "--nope", ""}) {
        expect_wrong_use(run_strata({command}), "");
    }
    for (const std::string& command : kCommands) {
        expect_wrong_use(run_strata({command, "--nope"}), "");
    }
    expect_wrong_use(run_strata({"draft", "-m", "x", "--mtp", "--dflash", "y", "--tokens", "1",
                                 "--anchor", "1"}),
                     "--mtp and --dflash are both given");
    expect_wrong_use(run_strata({"quantize", "x", "y", "--type", "q8_0", "--no-mtp", "--only-mtp"}),
                     "both --no-mtp and --only-mtp are given");
    expect_wrong_use(run_strata({"inspect", "one.gguf", "two.gguf"}),
                     "'two.gguf' is one value more than inspect takes");
    expect_wrong_use(run_strata({"inspect", "one.gguf", "generate"}), "generate");
}

TEST(Use, what_a_command_needs_is_asked_for) {
    expect_wrong_use(run_strata({"generate", "-p", "x"}),
                     "no --model is given, wanted --model FILE");
    expect_wrong_use(run_strata({"generate", "-m", "x"}), "one of -p, -f and --tokens");
    expect_wrong_use(run_strata({"generate", "-m", "x", "-p", "x", "--tokens", "1"}),
                     "more than one prompt");
    expect_wrong_use(run_strata({"generate", "-m", "x", "-p", ""}), "empty prompt");
    expect_wrong_use(run_strata({"generate", "-m"}), "--model has no value, wanted FILE");
    expect_wrong_use(run_strata({"generate", "--temp", "1", "--temp"}),
                     "--temp has no value, wanted");
    expect_wrong_use(run_strata({"--bogus"}), "'--bogus' is no option of strata");
    expect_wrong_use(run_strata({"generate", "-m", "x", "-m", "y", "-p", "x"}),
                     "--model is given 2 times, wanted once");
    expect_wrong_use(run_strata({"inspect", "x", "--json=3"}), "--json has a value, wanted none");
    expect_wrong_use(run_strata({"chat"}), "--model");
    expect_wrong_use(run_strata({"chat", "-m", "x", "--think", "--no-think"}), "--no-think");
    expect_wrong_use(run_strata({"chat", "-m", "x", "-p", ""}), "-p is empty");
    expect_wrong_use(run_strata({"logits", "-m", "x", "-o", "y"}), "--tokens");
    expect_wrong_use(run_strata({"logits", "-m", "x", "--tokens", "1"}), "--output");
    expect_wrong_use(run_strata({"features", "-m", "x", "--tokens", "1", "-o", "y"}), "--layers");
    expect_wrong_use(run_strata({"draft", "-m", "x", "--mtp", "--tokens", "1"}), "--anchor");
    expect_wrong_use(run_strata({"draft", "-m", "x", "--tokens", "1", "--anchor", "1"}), "--mtp");
    expect_wrong_use(run_strata({"convert", "-o", "x"}), "DIR");
    expect_wrong_use(run_strata({"convert", "x"}), "--output");
    expect_wrong_use(run_strata({"inspect"}), "FILE");
}

TEST(Use, a_value_that_no_run_can_use_is_wrong_use) {
    const struct {
        const char* option;
        const char* value;
        const char* named;
    } cases[] = {{"-n", "-1", "--max-tokens"},
                 {"-n", "1e3", "--max-tokens"},
                 {"-n", "", "--max-tokens"},
                 {"-m", "", "--model"},
                 {"--temp", "nan", "--temp"},
                 {"--temp", "inf", "--temp"},
                 {"--temp", "1e999", "--temp"},
                 {"--temp", "-0.1", "temperature is -0.1"},
                 {"--temp", "1e300", "temperature is 1e+300"},
                 {"--top-k", "-1", "--top-k"},
                 {"--top-p", "1.5", "top-p is 1.5"},
                 {"--top-p", "nan", "--top-p"},
                 {"--min-p", "-1", "min-p is -1"},
                 {"--min-p", "2", "min-p is 2"},
                 {"--seed", "-1", "--seed"},
                 {"--seed", "18446744073709551616", "--seed"},
                 {"--repeat-penalty", "0", "repeat penalty is 0"},
                 {"--repeat-penalty", "-1", "repeat penalty is -1"},
                 {"--repeat-last-n", "-2", "--repeat-last-n"},
                 {"--threads", "0", "--threads"},
                 {"--threads", "1000000000000", "--threads"},
                 {"--context", "0", "--context"},
                 {"--context", "99999999999999999999", "--context"},
                 {"--chunk", "0", "--chunk"},
                 {"--chunk", "4097", "--chunk"},
                 {"--kv", "f64", "--kv"},
                 {"--prompt-form", "", "--prompt-form"},
                 {"--stop", "", "--stop"},
                 {"--spec", "0", "--spec"},
                 {"--spec", "17", "--spec"},
                 {"--spec-min-p", "1.5", "--spec-min-p"},
                 {"--draft", "dflash", "--draft"},
                 {"--mtp", "", "--mtp"},
                 {"--dflash", "", "--dflash"},
                 {"--draft", "nonsense", "--draft"}};
    for (const auto& one : cases) {
        Words words = {"generate", "-p", "x"};
        if (std::string(one.option) != "-m") words.insert(words.end(), {"-m", "missing.gguf"});
        words.insert(words.end(), {one.option, one.value});
        SCOPED_TRACE(std::string(one.option) + " " + one.value);
        expect_wrong_use(run_strata(words), one.named);
    }
}

TEST(Use, window_rows_and_confidence_have_their_ranges) {
    const Words logits = {"logits", "-m", "x", "--tokens", "1", "-o", "y"};
    for (const char* window : {"0", "17", "-1", "x"}) {
        Words words = logits;
        words.insert(words.end(), {"--window", window});
        expect_wrong_use(run_strata(words), "--window");
    }
    const Words draft = {"draft", "-m", "x", "--mtp", "--tokens", "1", "--anchor", "1"};
    for (const char* rows : {"1", "0", "17"}) {
        Words words = draft;
        words.insert(words.end(), {"--rows", rows});
        expect_wrong_use(run_strata(words), "--rows");
    }
    for (const char* least : {"-0.1", "1.1", "nan"}) {
        Words words = draft;
        words.insert(words.end(), {"--spec-min-p", least});
        expect_wrong_use(run_strata(words), "--spec-min-p");
    }
    expect_wrong_use(run_strata({"draft", "-m", "x", "--mtp", "--tokens", "1", "--anchor", "-1"}),
                     "--anchor");
}

TEST(Use, a_command_that_is_none_is_named_beside_those_there_are) {
    expect_wrong_use(run_strata({"generat", "-m", "x"}), "'generat' is no command, wanted one of");
    expect_wrong_use(run_strata({"bench", "speed"}), "'speed' is no command, wanted one of decode");
    expect_wrong_use(run_strata({"generate", "-m", "x", "-p", "x", "--stop", "\xff"}), "UTF-8");
    expect_wrong_use(run_strata({"generate", "-m", "x", "-p", "x", "-n", "99999999999999999999"}),
                     "0 to 9223372036854775807");
}

// WIN-01
TEST(Use, paths_of_any_bytes_and_any_locale_work) {
    for (const char* name : {"with spaces", "\xd0\xbc\xd0\xbe\xd0\xb4\xd0\xb5\xd0\xbb\xd1\x8c",
                             "\xe6\xa8\xa1\xe5\x9e\x8b", "\xf0\x9f\x98\x80", "q'u\"o",
                             "line\nbreak", "\xff\xfe", "-m"}) {
        const TempDir directory;
        const std::string folder = directory / name;
        std::filesystem::create_directory(folder);
        const std::string model = folder + "/" + name + ".gguf";
        expect_done(run_strata({"synth", model, "--preset", "tiny"}));
        for (const char* locale : {"C", "ja_JP.SJIS", "de_DE.UTF-8"}) {
            const RunOptions options{.environment = {{"LC_ALL", locale}}};
            const Ran ran = run_strata(
                {"generate", "-m", model, "-p", "a", "-n", "2", "--temp", "0.5", "--json"},
                options);
            EXPECT_GT(json_of(ran)["timings"]["load_ms"], 0) << ran.out;
        }
        expect_failed(run_strata({"generate", "-m", model + "x", "-p", "a"}), "x");
    }
}

TEST(Use, a_list_of_tokens_says_which_item_is_wrong) {
    const TempDir directory;
    write_file(directory / "ids", "1\n2\nthree\n");
    write_file(directory / "empty", "");
    const auto refused = [](const std::string& tokens, const std::string& part) {
        expect_wrong_use(run_strata({"generate", "-m", "x", "--tokens", tokens}), part);
    };
    const auto file = [&](const char* name) { return std::string("@").append(directory / name); };
    refused("1,,2", "token id 2");
    refused("1,99999999999", "'99999999999'");
    refused("", "no token id");
    refused(file("ids"), "'three'");
    refused(file("empty"), "no token id");
    refused(file("none"), "No such file");
    refused(file("."), "directory");
}

}  // namespace
}  // namespace strata::test
