// Whole texts through models of random weights.
#include "strata/eval.h"

#include <gtest/gtest.h>

#include <cmath>

#include "eval/row.h"
#include "strata/synth.h"
#include "tests/support/bad_token.h"
#include "tests/support/temp_dir.h"

namespace strata::test {
namespace {

template <typename T>
T must(Result<T> result) {
    if (!result.ok()) {
        ADD_FAILURE() << result.error().message;
        std::abort();
    }
    return std::move(result).value();
}

template <typename T>
std::string error_of(const Result<T>& result) {
    EXPECT_FALSE(result.ok());
    return result.ok() ? "" : result.error().message;
}

const std::string kText = "A token is a byte here, and 40 of them fit.";
constexpr double kRounding = 1e-9;

// Models whose tokens are single bytes.
class Eval : public ::testing::Test {
  protected:
    std::string synth(const std::string& name, std::uint64_t seed = 1,
                      std::int64_t vocabulary = 300) {
        SynthRequest request;
        request.preset = "tiny";
        request.output = folder_ / name;
        request.seed = seed;
        request.vocabulary = vocabulary;
        must(synthesize_model(request));
        return request.output;
    }

    static std::unique_ptr<Engine> load(const std::string& path, std::int64_t context = 0) {
        return must(Engine::load({.model = path, .threads = 1, .context = context}));
    }

    AgreementRequest compare(const std::string& path, const std::string& against) {
        AgreementRequest request;
        request.model.model = path;
        request.model.threads = 1;
        request.against = request.model;
        request.against.model = against;
        request.text = kText;
        return request;
    }

    TempDir folder_;
};

TEST_F(Eval, every_token_but_the_first_is_predicted_once_whatever_the_window) {
    const auto engine = load(synth("a.gguf"));
    const auto tokens = must(engine->tokenize(kText));
    ASSERT_EQ(tokens.size(), kText.size());
    const auto vocabulary = static_cast<std::size_t>(engine->info().vocabulary);
    for (const std::int64_t window : {2, 3, 7, 42, 43, 44, 512}) {
        // The same windows by hand: [first, first + window), the next from the last token on.
        eval::MeanOf want;
        for (std::size_t first = 0; first + 1 < tokens.size();
             first += static_cast<std::size_t>(window) - 1) {
            const auto end = std::min(tokens.size(), first + static_cast<std::size_t>(window));
            LogitsRequest request;
            request.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(first),
                                  tokens.begin() + static_cast<std::ptrdiff_t>(end));
            std::vector<float> rows;
            must(engine->logits(request, [&](std::span<const float> part) {
                rows.insert(rows.end(), part.begin(), part.end());
                return Status(Ok{});
            }));
            for (std::size_t i = 0; first + i + 1 < end; ++i) {
                want.add(eval::nats(std::span(rows).subspan(i * vocabulary, vocabulary),
                                    tokens[first + i + 1]));
            }
        }
        const Perplexity found = must(perplexity(*engine, kText, window));
        SCOPED_TRACE(window);
        EXPECT_EQ(want.count(), 42);
        EXPECT_EQ(found.tokens, 43);
        EXPECT_EQ(found.window, window);
        EXPECT_NEAR(found.nats.value, want.mean().value, kRounding);
        EXPECT_NEAR(found.nats.error, want.mean().error, kRounding);
        EXPECT_NEAR(found.perplexity.value, std::exp(want.mean().value), kRounding * 1000);
        EXPECT_NEAR(found.bits_per_byte, want.sum() / std::log(2.0) / 43, kRounding);
    }
}

TEST_F(Eval, windows_outside_the_context_and_texts_without_a_prediction_are_errors) {
    const auto engine = load(synth("a.gguf"), 16);
    EXPECT_EQ(must(perplexity(*engine, kText, 0)).window, 16);
    EXPECT_NE(error_of(perplexity(*engine, kText, 17)).find("17"), std::string::npos);
    EXPECT_NE(error_of(perplexity(*engine, kText, 1)).find("wanted 2"), std::string::npos);
    EXPECT_NE(error_of(perplexity(*engine, "x", 0)).find("1 tokens"), std::string::npos);
    EXPECT_NE(error_of(perplexity(*engine, "", 0)).find("0 tokens"), std::string::npos);
}

TEST_F(Eval, a_caller_that_wants_no_more_gets_an_error) {
    const auto engine = load(synth("a.gguf"));
    const auto stop = [](std::int64_t done, std::int64_t total) {
        EXPECT_EQ(total, 42);
        return done < 5;
    };
    EXPECT_NE(error_of(perplexity(*engine, kText, 0, stop)).find("5 of 42"), std::string::npos);
    const std::string path = folder_ / "a.gguf";
    EXPECT_NE(error_of(agreement(compare(path, path), stop)).find("5 of 42"), std::string::npos);
}

TEST_F(Eval, a_model_agrees_with_itself) {
    const std::string path = synth("a.gguf");
    const Agreement found = must(agreement(compare(path, path)));
    EXPECT_EQ(found.tokens, 43);
    EXPECT_EQ(found.divergence.value, 0);
    EXPECT_EQ(found.largest_divergence, 0);
    EXPECT_EQ(found.same_top, 1);
    EXPECT_EQ(found.largest_margin, 0);
}

TEST_F(Eval, other_weights_are_as_far_apart_as_their_rows) {
    const std::string a = synth("a.gguf");
    const std::string b = synth("b.gguf", 2);
    std::vector<float> rows[2];
    for (const int i : {0, 1}) {
        const auto engine = load(i == 0 ? a : b);
        LogitsRequest request;
        request.tokens = must(engine->tokenize(kText));
        must(engine->logits(request, [&](std::span<const float> part) {
            rows[i].insert(rows[i].end(), part.begin(), part.end());
            return Status(Ok{});
        }));
    }
    eval::MeanOf want;
    double largest = 0;
    std::int64_t at = 0;
    int same = 0;
    double margin = 0;
    for (std::size_t i = 0; i + 1 < kText.size(); ++i) {
        const auto p = std::span(rows[0]).subspan(i * 300, 300);
        const auto q = std::span(rows[1]).subspan(i * 300, 300);
        const double value = eval::divergence(q, p);
        if (value > largest) at = static_cast<std::int64_t>(i);
        largest = std::max(largest, value);
        want.add(value);
        same += eval::top(q) == eval::top(p) ? 1 : 0;
        margin = std::max(margin, static_cast<double>(q[eval::top(q)]) - q[eval::top(p)]);
    }
    const Agreement found = must(agreement(compare(a, b)));
    EXPECT_NEAR(found.divergence.value, want.mean().value, kRounding);
    EXPECT_NEAR(found.divergence.error, want.mean().error, kRounding);
    EXPECT_NEAR(found.largest_divergence, largest, kRounding);
    EXPECT_EQ(found.largest_position, at);
    EXPECT_NEAR(found.same_top, same / 42.0, kRounding);
    EXPECT_LT(same, 42);
    EXPECT_NEAR(found.largest_margin, margin, kRounding);
    EXPECT_GT(found.divergence.value, 0.01);
}

TEST_F(Eval, logits_that_are_no_numbers_are_told_of_with_the_model_that_gave_them) {
    const std::string good = synth("a.gguf");
    const std::string bad = with_a_bad_token(good, folder_, kText[5]);
    const std::string alone = error_of(perplexity(*load(bad), kText, 0));
    EXPECT_TRUE(alone.starts_with("'" + bad + "': the logits after token 5 ")) << alone;
    const std::string both = error_of(agreement(compare(bad, good)));
    EXPECT_TRUE(both.starts_with("after token 5 of the text the logits of '" + bad + "' and '" +
                                 good + "' are "))
        << both;
}

TEST_F(Eval, models_that_read_a_text_differently_are_refused) {
    const std::string a = synth("a.gguf");
    const std::string b = synth("b.gguf", 1, 320);
    EXPECT_NE(error_of(agreement(compare(a, b))).find("tokenizer.ggml.tokens"), std::string::npos);
    EXPECT_NE(error_of(agreement(compare(a, folder_ / "none"))).find("none"), std::string::npos);
    // Too few rows for the byte tokens: neither file has a tokenizer, and the sizes differ.
    const std::string c = synth("c.gguf", 1, 128);
    const std::string d = synth("d.gguf", 1, 129);
    EXPECT_NE(error_of(agreement(compare(c, d))).find("129"), std::string::npos);
    EXPECT_NE(error_of(agreement(compare(c, c))).find("no tokenizer"), std::string::npos);
}

}  // namespace
}  // namespace strata::test
