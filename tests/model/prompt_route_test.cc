// Whole prompts by the prompt route, on the backends that have one, beside the CPU.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/tiny_target.h"
#include "tests/support/backends.h"
#include "tests/support/compare.h"

namespace strata::test {
namespace {

// Logits of the last rows of chunks of these sizes.
std::vector<float> read_prompt(model::Target& target, std::span<const std::int32_t> tokens,
                               const std::vector<std::size_t>& chunks,
                               op::DeltaForm form = op::DeltaForm::recurrent) {
    auto made = target.make_sequence({256, op::CacheType::f16, false});
    EXPECT_TRUE(made.ok());
    model::Sequence sequence = std::move(made).value();
    std::vector<float> logits;
    for (const std::size_t rows : chunks) {
        model::StepRequest request;
        request.tokens = tokens.first(rows);
        request.form = form;
        request.logits = model::LogitRows::all;
        const auto result = target.step(sequence, request);
        EXPECT_TRUE(result.ok());
        append(logits, std::vector<float>(result->logits.data,
                                          result->logits.data + result->logits.size()));
        target.commit(sequence, static_cast<std::int64_t>(rows));
        tokens = tokens.subspan(rows);
    }
    return logits;
}

// Rows whose logits differ by no more than rounding, in the root of the mean square. The others
// have experts or blocks that were chosen by a near tie.
std::size_t close_rows(const std::vector<float>& got, const std::vector<float>& want,
                       std::int64_t vocabulary) {
    std::size_t close = 0;
    const Rows all = rows_of(want, vocabulary);
    for (std::size_t t = 0; t < all.size(); ++t) {
        double error = 0;
        double size = 0;
        for (std::size_t i = 0; i < all[t].size(); ++i) {
            const double difference = got[t * all[t].size() + i] - all[t][i];
            error += difference * difference;
            size += all[t][i] * all[t][i];
        }
        if (std::sqrt(error / size) < Tolerance::rounded_inputs().scaled) ++close;
    }
    return close;
}

// use(target) on each backend that has the route, for the model of `host`.
template <typename Use>
void on_prompt_targets(const TinyTarget::Options& options, const TinyTarget& host, Use use) {
    for (TestBackend& backend : backends()) {
        if (backend.backend.ops.prompts == nullptr) continue;
        SCOPED_TRACE(backend.name);
        auto file = gguf::File::open(host.path());
        ASSERT_TRUE(file.ok());
        auto loaded = model::Target::load(std::move(file).value(), *backend.backend.device,
                                          backend.backend.ops, options.rows_max, options.ngram);
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
        use(**loaded);
    }
}

TEST(PromptRoute, has_the_logits_of_the_cpu_wherever_the_prompt_is_cut) {
    const TinyTarget::Options options;
    TinyTarget cpu(options);
    const Tokens tokens = random_tokens("prompt route", 45, cpu->config());
    const auto want = read_prompt(*cpu, tokens, {45});
    on_prompt_targets(options, cpu, [&](model::Target& target) {
        const auto got = read_prompt(target, tokens, {45});
        EXPECT_GE(10 * close_rows(got, want, cpu->config().vocabulary), 9 * tokens.size());
        expect_same_bits("in parts", read_prompt(target, tokens, {17, 28}), got);
    });
}

TEST(PromptRoute, has_a_chunked_form_that_differs_by_rounding_and_may_be_cut_between_chunks) {
    TinyTarget::Options options;
    options.change = [](model::Config& config) { config.delta_head_dim = 32; };
    options.rows_max = 78;
    TinyTarget cpu(options);
    const Tokens tokens = random_tokens("prompt chunks", 78, cpu->config());
    on_prompt_targets(options, cpu, [&](model::Target& target) {
        const auto got = read_prompt(target, tokens, {78}, op::DeltaForm::chunked);
        const auto want = read_prompt(target, tokens, {78});
        EXPECT_NE(got, want);
        EXPECT_GE(10 * close_rows(got, want, cpu->config().vocabulary), 9 * tokens.size());
        expect_same_bits("in parts", read_prompt(target, tokens, {64, 14}, op::DeltaForm::chunked),
                         got);
    });
}

}  // namespace
}  // namespace strata::test
