// The whole path through the program, from a golden checkpoint to the reference's answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/cli/expect.h"
#include "tests/cli/models.h"
#include "tests/cli/run_binary.h"
#include "tests/golden/golden.h"

namespace strata::test {
namespace {

using Words = std::vector<std::string>;

// Parts of the distance from the smallest logit to the largest. Sums of F32 differ by their order;
// keys and values in F16 have 11 bits, which a few layers carry to the end.
constexpr double kFloatPart = 2e-5;
constexpr double kHalfPart = 5e-4;
// A half has 11 bits, and the rows that it stands for are themselves F32 sums.
constexpr double kFeaturePart = 1e-3;
// Below this distance to the second logit, rounding may choose another token.
constexpr double kMarginPart = 1e-3;
constexpr double kConfidenceError = 1e-4;

const Words kPrompts = {"one", "short", "eos", "long"};

struct Case {
    const char* name;
    const Model& (*model)();
};
std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }

class Answers : public testing::TestWithParam<Case> {
  protected:
    const std::string& model() const { return GetParam().model().path(); }
    std::string output() const { return GetParam().model().directory() / "out"; }
    std::string ids(const std::string& prompt) const {
        return list_text(golden_.ints(prompt + ".ids"));
    }
    std::vector<float> logits(const std::string& prompt, const Words& more) const {
        Words words = {"logits", "-m", model(), "--tokens", ids(prompt), "-o", output()};
        words.insert(words.end(), more.begin(), more.end());
        expect_done(run_strata(words));
        return read_values<float>(output());
    }

    Golden golden_ = Golden::load(GetParam().name);
};

double spread(std::span<const float> values) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return *most - *least;
}

void expect_near(const std::string& what, std::span<const float> got, std::span<const float> want,
                 double part) {
    ASSERT_EQ(got.size(), want.size()) << what;
    const double allowed = part * spread(want);
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double error = std::abs(static_cast<double>(got[i]) - want[i]);
        worst = error <= worst ? worst : error;  // a NaN is the worst
    }
    EXPECT_LE(worst, allowed) << what;
}

TEST_P(Answers, logits_are_the_references) {
    for (const std::string& prompt : kPrompts) {
        const auto want = golden_.floats(prompt + ".logits");
        expect_near(prompt, logits(prompt, {"--kv", "f32"}), want, kFloatPart);
        expect_near(prompt + " f16", logits(prompt, {}), want, kHalfPart);
        expect_near(prompt + " chunked",
                    logits(prompt, {"--kv", "f32", "--prompt-form", "chunked"}), want, kFloatPart);
    }
}

TEST_P(Answers, mtp_logits_are_the_references) {
    for (const std::string prompt : {"short", "eos", "long"}) {
        const auto want = golden_.floats(prompt + ".mtp_logits");
        expect_near(prompt, logits(prompt, {"--head", "mtp", "--kv", "f32"}), want, kFloatPart);
        expect_near(prompt, logits(prompt, {"--head", "mtp"}), want, kHalfPart);
    }
}

TEST_P(Answers, rows_of_a_window_have_the_bits_of_rows_alone) {
    const auto bits = [](const std::vector<float>& values) {
        return std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size());
    };
    for (const std::string head : {"main", "mtp"}) {
        const std::vector<float> alone = logits("long", {"--window", "1", "--head", head});
        for (const char* window : {"2", "3", "5", "8", "16"}) {
            const auto rows =
                logits("long", {"--window", window, "--head", head, "--threads", "2"});
            EXPECT_TRUE(bits(rows) == bits(alone)) << head << " " << window;
        }
        const std::string key = head == "mtp" ? "long.mtp_logits" : "long.logits";
        expect_near("window 1", alone, golden_.floats(key), kHalfPart);
    }
}

TEST_P(Answers, logits_do_not_depend_on_how_a_prompt_is_cut) {
    for (const char* form : {"recurrent", "chunked"}) {
        for (const char* chunk : {"1", "7", "32", "64"}) {
            expect_near(std::string(form) + " " + chunk,
                        logits("long", {"--chunk", chunk, "--kv", "f32", "--prompt-form", form}),
                        golden_.floats("long.logits"), kFloatPart);
        }
    }
}

TEST_P(Answers, features_are_the_means_of_the_streams) {
    const auto shape = golden_.shape("long.hc_mean");
    const auto want = golden_.floats("long.hc_mean");
    const auto ids_of = golden_.ints("long.ids");
    const auto hidden = static_cast<std::size_t>(shape[2]);
    const Words layers = {"0", "2", "3"};
    for (const char* chunk : {"7", "512"}) {
        expect_done(run_strata({"features", "-m", model(), "--tokens", ids("long"), "--layers",
                                "0,2,3", "-o", output(), "--kv", "f32", "--chunk", chunk}));
        const auto index = read_values<std::int32_t>(output() + ".idx");
        const auto halves = read_values<_Float16>(output() + ".f16");
        ASSERT_EQ(index.size(), 2 * ids_of.size());
        ASSERT_EQ(halves.size(), ids_of.size() * layers.size() * hidden);
        std::vector<float> got;
        std::vector<float> expected;
        for (std::size_t row = 0; row < ids_of.size(); ++row) {
            EXPECT_EQ(index[2 * row], static_cast<std::int32_t>(row));
            EXPECT_EQ(index[2 * row + 1], ids_of[row]);
            for (const std::string& layer : layers) {
                const std::size_t from = (std::stoul(layer) * ids_of.size() + row) * hidden;
                expected.insert(expected.end(), want.begin() + from, want.begin() + from + hidden);
            }
        }
        for (const _Float16 half : halves) got.push_back(static_cast<float>(half));
        expect_near(std::string("chunk ") + chunk, got, expected, kFeaturePart);
    }
}

TEST_P(Answers, greedy_text_is_the_references_while_the_margin_decides) {
    for (const std::string& prompt : kPrompts) {
        const auto want = golden_.ints(prompt + ".greedy");
        const auto margins = golden_.floats(prompt + ".greedy_margin");
        const double least = kMarginPart * spread(golden_.floats(prompt + ".logits"));
        const auto json =
            json_of(run_strata({"generate", "-m", model(), "--tokens", ids(prompt), "-n", "16",
                                "--temp", "0", "--ignore-eos", "--json", "--kv", "f32"}));
        ASSERT_EQ(json["tokens"].size(), want.size());
        std::size_t compared = 0;
        while (compared < want.size() && margins[compared] > least) {
            EXPECT_EQ(json["tokens"][compared], want[compared]) << prompt << " " << compared;
            ++compared;
        }
        EXPECT_GT(compared, 0U) << prompt;
    }
}

// SPEC-16: three guesses in a chain.
TEST_P(Answers, drafts_of_the_mtp_layer_are_the_references) {
    for (const std::string& prompt : kPrompts) {
        const auto want = golden_.ints(prompt + ".mtp_chain");
        const auto confidence = golden_.floats(prompt + ".mtp_chain_confidence");
        const std::string anchor = std::to_string(golden_.ints(prompt + ".greedy")[0]);
        const Words words = {"draft",    "-m",   model(),  "--mtp", "--tokens", ids(prompt),
                             "--anchor", anchor, "--json", "--kv",  "f32"};
        const auto json = json_of(run_strata(words));
        EXPECT_EQ(json["path"], std::vector<std::int32_t>(want.begin(), want.end())) << prompt;
        ASSERT_EQ(json["confidence"].size(), want.size());
        for (std::size_t i = 0; i < want.size(); ++i) {
            EXPECT_NEAR(json["confidence"][i], confidence[i], kConfidenceError) << prompt;
        }
        // Two rows make one guess.
        Words fewer = words;
        fewer.insert(fewer.end(), {"--rows", "2"});
        EXPECT_EQ(json_of(run_strata(fewer))["path"], std::vector<std::int32_t>{want[0]});
        // A draft ends before the first guess that is not sure enough.
        Words sure = words;
        sure.insert(sure.end(), {"--spec-min-p", "1"});
        EXPECT_EQ(json_of(run_strata(sure))["path"].size(), 0U);
    }
}

TEST_P(Answers, block_drafts_are_the_references) {
    const auto context = golden_.ints("long.ids");
    for (const int length : {1, 10, 60, 97}) {
        const std::string key = "draft." + std::to_string(length) + ".";
        const Words words = {"draft",
                             "-m",
                             model(),
                             "--dflash",
                             draft_of(GetParam().name),
                             "--tokens",
                             list_text(context.first(static_cast<std::size_t>(length))),
                             "--anchor",
                             std::to_string(golden_.ints(key + "anchor")[0]),
                             "--rows",
                             std::to_string(golden_.ints(key + "rows")[0]),
                             "--json",
                             "--kv",
                             "f32"};
        const auto json = json_of(run_strata(words));
        const auto path = golden_.ints(key + "path");
        const auto confidence = golden_.floats(key + "confidence");
        const auto candidates = golden_.ints(key + "candidates");
        const auto scores = golden_.floats(key + "scores");
        EXPECT_EQ(json["path"], std::vector<std::int32_t>(path.begin(), path.end())) << length;
        ASSERT_EQ(json["candidates"].size(), path.size());
        ASSERT_EQ(json["scores"].size(), path.size());
        const std::size_t width = candidates.size() / path.size();
        for (std::size_t i = 0; i < path.size(); ++i) {
            EXPECT_NEAR(json["confidence"][i], confidence[i], kConfidenceError) << length;
            ASSERT_EQ(json["scores"][i].size(), width);
            for (std::size_t c = 0; c < width; ++c) {
                EXPECT_EQ(json["candidates"][i][c], candidates[i * width + c]) << length;
                EXPECT_NEAR(json["scores"][i][c], scores[i * width + c], kConfidenceError);
            }
        }
        Words sure = words;
        sure.insert(sure.end(), {"--spec-min-p", "1"});
        EXPECT_EQ(json_of(run_strata(sure))["path"].size(), 0U);
    }
}

TEST(Drafts, a_draft_that_does_not_fit_is_refused_by_name) {
    const Words draft = {"--tokens", "1", "--anchor", "1"};
    Words words = {"draft", "-m", tiny().path(), "--dflash", draft_of("odd")};
    words.insert(words.end(), draft.begin(), draft.end());
    expect_failed(run_strata(words), "width is 96, wanted the target's 128");
    words = {"draft", "-m", tiny().path(), "--dflash", tiny().path()};
    words.insert(words.end(), draft.begin(), draft.end());
    expect_failed(run_strata(words), "architecture 'qwen4exp', wanted a draft");
    words = {"draft", "-m", tiny().path(), "--dflash", draft_of("tiny"), "--rows", "9"};
    words.insert(words.end(), draft.begin(), draft.end());
    expect_failed(run_strata(words), "9 rows was asked for, wanted 2 to 8");
}

INSTANTIATE_TEST_SUITE_P(Golden, Answers, testing::Values(Case{"tiny", tiny}, Case{"odd", odd}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace strata::test
