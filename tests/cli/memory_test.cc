// What the program does where memory is short: it says so before it reads a model.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/expect.h"
#include "tests/cli/run_binary.h"
#include "tests/support/temp_dir.h"

namespace strata::test {
namespace {

using Words = std::vector<std::string>;

constexpr std::int64_t kContext = 1048576;
// Less than that context takes and several times what a program built with a sanitizer holds: this
// limit is real, and a program past it is killed.
constexpr std::int64_t kGroupBytes = 256 << 20;

// A small model of a long context, whose keys and values are most of what it takes.
class Memory : public ::testing::Test {
  protected:
    Memory() {
        expect_done(run_strata(
            {"synth", model_, "--preset", "tiny", "--context", std::to_string(kContext)}));
    }

    Ran generate(const Words& more) const {
        Words words = {"generate", "-m", model_,   "--tokens", "1,2",
                       "-n",       "2",  "--temp", "0",        "--json"};
        words.insert(words.end(), more.begin(), more.end());
        return run_strata(words);
    }

    TempDir directory_;
    std::string model_ = directory_ / "long.gguf";
};

// MEM-02, MEM-03, MEM-05
TEST_F(Memory, bounds_the_context_with_one_line_or_a_refusal) {
    const auto whole = json_of(generate({"--ram", "1GiB"}));
    EXPECT_EQ(whole["context"], kContext);
    EXPECT_GT(whole["memory"]["checkpoints"], 0);
    std::int64_t bytes = 0;  // without checkpoints
    for (const char* part : {"weights", "state", "workspace", "drafter", "reserve"}) {
        bytes += whole["memory"][part].get<std::int64_t>();
    }
    const std::string ram = std::to_string(bytes);
    const Ran shrunk = generate({"--ram", ram});
    EXPECT_EQ(shrunk.status, 0);
    EXPECT_NE(shrunk.err.find("tokens, not " + std::to_string(kContext)), std::string::npos)
        << shrunk.err;
    EXPECT_NE(shrunk.err.find("more does not fit, since --ram allows "), std::string::npos);
    EXPECT_EQ(std::count(shrunk.err.begin(), shrunk.err.end(), '\n'), 1);
    const auto json = nlohmann::ordered_json::parse(shrunk.out);
    EXPECT_LT(json["context"], kContext);
    EXPECT_GE(json["context"], 1024);
    EXPECT_EQ(json["context_note"].get<std::string>() + "\n", shrunk.err);
    EXPECT_GT(json["memory"]["checkpoints"], 0);
    EXPECT_EQ(json["tokens"], whole["tokens"]);
    expect_failed(generate({"--ram", ram, "-c", std::to_string(kContext)}), "a context of ");
    expect_failed(generate({"--ram", "1MiB"}),
                  "; --ram allows 1 MiB, and a file in fewer bits or a larger --ram is wanted");
    expect_failed(generate({"--ram", "1945KiB"}), "; --ram allows 1 MiB, and ");
    expect_failed(generate({"--ram", "1k"}), "; --ram allows 1024 bytes, and ");
}

// SPEC-05: of a sequence's own context, before any of it is taken; a short request then has room in
// a context of any length.
TEST_F(Memory, of_drafters_is_planned_with_the_models) {
    const std::string model = directory_ / "mtp.gguf";
    const std::string draft = directory_ / "draft.gguf";
    expect_done(run_strata({"synth", model, "--preset", "tiny", "--context",
                            std::to_string(kContext), "--mtp", "--dflash", draft}));
    const auto run = [&](const Words& more) {
        Words words = {
            "generate", "-m", model,    "--tokens", "1,2,3,4,5,6,7,8,9,10,11,12,13", "-n", "9",
            "--temp",   "0",  "--json", "-c",       std::to_string(kContext)};
        words.insert(words.end(), more.begin(), more.end());
        return run_strata(words);
    };
    const auto plain = json_of(run({"--draft", "none", "--ram", "2GiB"}));
    EXPECT_EQ(plain["memory"]["drafter"], 0);
    const Words drafting = {"--dflash", draft, "--draft", "auto"};
    const auto with = [&](const Words& more) {
        Words words = drafting;
        words.insert(words.end(), more.begin(), more.end());
        return run(words);
    };
    const auto drafted = json_of(with({"--ram", "2GiB"}));
    EXPECT_EQ(drafted["context"], kContext);
    EXPECT_EQ(drafted["tokens"], plain["tokens"]);
    EXPECT_GT(drafted["memory"]["drafter"], 0);
    const std::int64_t bytes = drafted["memory"]["drafter"];
    const std::int64_t mib = (bytes + (1 << 20) - 1) >> 20;
    expect_failed(with({"--ram", "1MiB"}), ", drafter " + std::to_string(mib) + " MiB, ");
}

TEST_F(Memory, of_a_gpu_that_is_limited_and_not_used_is_told) {
    const Ran ran = generate({"--vram", "8GiB", "--device", "cpu", "--ram", "1GiB"});
    EXPECT_EQ(ran.status, 0);
    EXPECT_NE(ran.err.find("not a GPU: the limit on a GPU's memory limits nothing here\n"),
              std::string::npos)
        << ran.err;
}

// MEM-03. Where this process may make a control group of its own.
TEST_F(Memory, of_a_control_group_is_what_there_is) {
    namespace fs = std::filesystem;
    const std::string key = ":memory:";
    std::ifstream own("/proc/self/cgroup");
    std::string line;
    while (std::getline(own, line) && line.find(key) == std::string::npos) {
    }
    const std::string mount = "/sys/fs/cgroup/memory";
    const std::string group = mount + "/strata-test-" + std::to_string(::getpid());
    std::error_code error;
    if (line.find(key) == std::string::npos || !fs::create_directory(group, error)) {
        GTEST_SKIP() << "no control groups to make";
    }
    const auto put = [](const std::string& path, const std::string& text) {
        std::ofstream(path) << text;
    };
    put(group + "/memory.limit_in_bytes", std::to_string(kGroupBytes));
    // What this process starts is in its group.
    put(group + "/cgroup.procs", std::to_string(::getpid()));
    const Ran asked = generate({"-c", std::to_string(kContext)});
    const Ran shrunk = generate({});
    put(mount + line.substr(line.find(key) + key.size()) + "/cgroup.procs",
        std::to_string(::getpid()));
    ::rmdir(group.c_str());
    expect_failed(asked, "tokens would fit");
    EXPECT_EQ(shrunk.status, 0);
    EXPECT_NE(shrunk.err.find("tokens, not " + std::to_string(kContext)), std::string::npos)
        << shrunk.err;
}

// Sanitizers map more than a limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kLimitStep = 512 << 10;

// The least limit, in steps, under which the program ends well, as far as bisection finds it; one
// that is far too large where there is none.
std::uint64_t least_limit(const std::function<Ran(std::uint64_t)>& run) {
    std::uint64_t low = 0;
    std::uint64_t high = 1;
    constexpr std::uint64_t kMost = (std::uint64_t{1} << 40) / kLimitStep;
    while (high < kMost && run(high * kLimitStep).status != 0) low = std::exchange(high, 2 * high);
    while (high - low > 1) {
        const std::uint64_t middle = (low + high) / 2;
        (run(middle * kLimitStep).status == 0 ? high : low) = middle;
    }
    return high;
}

TEST_F(Memory, that_ends_in_the_middle_of_the_work_ends_in_a_sentence_and_leaves_nothing) {
    std::string prompt = "1";
    for (int i = 2; i < 600; ++i) prompt += ',' + std::to_string(1 + i % 250);
    const TempDir folder;
    for (const char* threads : {"1", "2"}) {
        const auto run = [&](std::uint64_t bytes) {
            RunOptions options;
            options.address_bytes_max = bytes;
            return run_strata({"logits", "-m", model_, "--tokens", prompt, "-c", "600", "-t",
                               threads, "--device", "cpu", "-o", folder / "logits.bin"},
                              options);
        };
        const std::uint64_t least = least_limit(run);
        bool in_an_op = false;
        for (std::uint64_t under = 1; under <= 12; ++under) {
            std::filesystem::remove(folder / "logits.bin");
            const Ran ran = run((least - under) * kLimitStep);
            EXPECT_EQ(ran.signal, 0) << ran.err;
            if (ran.status == 0) continue;  // where threads take what they find
            expect_failed(ran, "memory");
            EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << ran.err;
            in_an_op = in_an_op || ran.err.find(": an op was given none") != std::string::npos;
        }
        EXPECT_TRUE(in_an_op) << threads;
    }
}
#endif

}  // namespace
}  // namespace strata::test
