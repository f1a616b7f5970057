// Models made by the program itself: synth, and quantize of what it made.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/expect.h"
#include "tests/cli/models.h"
#include "tests/cli/run_binary.h"

namespace strata::test {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

Ran synth(const std::string& output, const Words& more = {}) {
    Words words = {"synth", output, "--preset", "tiny"};
    words.insert(words.end(), more.begin(), more.end());
    return run_strata(words);
}

TEST(SynthCommand, a_model_of_random_weights_generates) {
    const TempDir directory;
    const std::string model = directory / "m.gguf";
    expect_done(synth(model, {"--mtp", "--type", "q8_0", "--layers", "5", "--vocab", "300",
                              "--seed", "18446744073709551615"}));
    const Json made = json_of(run_strata({"generate", "-m", model, "-p", "Hello", "-n", "3",
                                          "--temp", "0", "--ignore-eos", "--json"}));
    EXPECT_EQ(made["prompt_tokens"], 5);
    EXPECT_EQ(made["tokens"].size(), 3U);
    expect_done(run_strata({"draft", "-m", model, "--mtp", "--tokens", "1,2", "--anchor", "3"}));
    const Json seen = json_of(run_strata({"inspect", model, "--json"}));
    EXPECT_EQ(directory.names(), Words{"m.gguf"});
}

TEST(SynthCommand, wrong_use_and_geometries_that_cannot_be) {
    const TempDir directory;
    const std::string model = directory / "m.gguf";
    expect_wrong_use(run_strata({"synth", "--preset", "tiny"}), "OUT");
    expect_wrong_use(run_strata({"synth", model}), "--preset");
    expect_wrong_use(run_strata({"synth", model, "--preset", "huge"}), "huge");
    expect_wrong_use(synth(model, {"--layers", "0"}), "--layers");
    expect_wrong_use(synth(model, {"--experts", "x"}), "--experts");
    expect_wrong_use(synth(model, {"--seed", "-1"}), "--seed");
    expect_failed(synth(model, {"--experts", "2"}), "4 of 2 experts");
    expect_failed(synth(model, {"--layers", "1"}), "n-gram block");
    expect_failed(synth(model, {"--hidden", "100", "--type", "q8_0"}), "rows of 100 values");
    expect_wrong_use(synth(model, {"--type", "q9_9"}), "q9_9");
    expect_wrong_use(synth(model, {"--type", "keep"}), "keep");
    expect_failed(synth(directory / "none/m.gguf"), "none/m.gguf");
    EXPECT_TRUE(directory.names().empty());
}

TEST(QuantizeCommand, a_quantized_model_is_smaller_and_runs) {
    const TempDir directory;
    const std::string output = directory / "q.gguf";
    expect_done(run_strata({"quantize", tiny().path(), output, "--type", "q8_0", "--experts-gate",
                            "q4_0", "--hyper", "f16", "--no-mtp", "-t", "2"}));
    EXPECT_LT(std::filesystem::file_size(output), std::filesystem::file_size(tiny().path()));
    expect_done(run_strata(
        {"generate", "-m", output, "--tokens", "1,2,3", "-n", "2", "--temp", "0", "--json"}));
}

TEST(QuantizeCommand, wrong_use_and_bad_input_leave_no_file) {
    const TempDir directory;
    const std::string output = directory / "q.gguf";
    const std::string& input = tiny().path();
    expect_wrong_use(run_strata({"quantize", input, output}), "--type");
    expect_wrong_use(run_strata({"quantize", input, "--type", "q8_0"}), "OUT");
    expect_wrong_use(run_strata({"quantize", input, output, "--type", "q8_0", "-t", "0"}),
                     "--threads");
    expect_failed(run_strata({"quantize", input, output, "--type", "q4_0", "--importance", "x"}),
                  "'x'");
    expect_failed(run_strata({"quantize", input, output, "--type", "q4_0", "--importance", input}),
                  "holds no importance");
    expect_wrong_use(run_strata({"quantize", input, output, "--type", "q9_9"}), "q9_9");
    expect_wrong_use(run_strata({"quantize", input, output, "--type", "q8_0", "--table", "x"}),
                     "'x'");
    expect_failed(run_strata({"quantize", directory / "none", output, "--type", "q8_0"}), "none");
    expect_failed(run_strata({"quantize", input, directory / "no/q.gguf", "--type", "q8_0"}),
                  "no/q.gguf");
    write_file(directory / "text", "no model");
    expect_failed(run_strata({"quantize", directory / "text", output, "--type", "q8_0"}), "text");
    EXPECT_EQ(directory.names(), Words{"text"});
    const std::string before = read_file(input);
    expect_failed(run_strata({"quantize", input, input, "--type", "q8_0"}), "another name");
    EXPECT_EQ(read_file(input), before);
    RunOptions full;
    full.file_bytes_max = 100000;
    expect_failed(run_strata({"quantize", input, output, "--type", "q8_0"}, full), "q.gguf");
    EXPECT_EQ(directory.names(), Words{"text"});
}

}  // namespace
}  // namespace strata::test
