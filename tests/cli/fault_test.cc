// Commands on a device that fails under them: this program runs them itself, on the emulated
// device.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "cli/app.h"
#include "tests/support/backends.h"
#include "tests/support/temp_dir.h"

namespace strata::test {
namespace {

using Words = std::vector<std::string>;

class Fault : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(run({"synth", model_, "--preset", "tiny", "--layers", "4"}).status, 0);
    }

    struct Ran {
        int status = 0;
        std::int64_t kernels = 0;
        std::string out;
    };
    static int status_of(const Words& words) {
        std::vector<const char*> arguments = {"strata"};
        for (const std::string& word : words) arguments.push_back(word.c_str());
        return cli::run(static_cast<int>(arguments.size()), arguments.data());
    }
    static Ran run(const Words& words) {
        const std::int64_t before = cuda_counts().value().kernels;
        testing::internal::CaptureStdout();
        const int status = status_of(words);
        return {status, cuda_counts().value().kernels - before,
                testing::internal::GetCapturedStdout()};
    }
    // In a process of its own, after `kernels` kernels.
    [[noreturn]] static void fail(const Words& words, std::int64_t kernels) {
        fail_cuda_after(static_cast<int>(kernels));
        std::exit(status_of(words));
    }
    Words on_device(Words words) const {
        words.insert(words.end(), {"-m", model_, "--device", "cuda", "-c", "64", "--temp", "0"});
        return words;
    }

    TempDir directory_;
    std::string model_ = directory_ / "model.gguf";
};

constexpr char kSentence[] =
    "the device CUDA 0 failed: an illegal memory access was encountered; nothing that it has "
    "computed since can be trusted, and a new start is wanted";

TEST_F(Fault, generate_says_that_the_device_failed_and_ends_with_an_error) {
    const Words words = on_device({"generate", "--tokens", "65,66,67", "-n", "6"});
    const Ran whole = run(words);
    ASSERT_EQ(whole.status, 0);
    ASSERT_GT(whole.kernels, 100);
    EXPECT_EXIT(fail(words, whole.kernels * 3 / 4), testing::ExitedWithCode(1), kSentence);
}

TEST_F(Fault, so_does_a_conversation) {
    const Words words = on_device({"chat", "-n", "2"});
    Words first = words;
    first.insert(first.end(), {"-p", "a"});
    const Ran answered = run(first);
    ASSERT_EQ(answered.status, 0);
    const std::string input = directory_ / "input";
    write_file(input, "a\nb\nc\n");
    const auto converse = [&] {
        if (std::freopen(input.c_str(), "r", stdin) == nullptr) std::exit(3);
        // In the second turn.
        fail(words, answered.kernels + answered.kernels / 4);
    };
    EXPECT_EXIT(converse(), testing::ExitedWithCode(1), kSentence);
}

}  // namespace
}  // namespace strata::test
