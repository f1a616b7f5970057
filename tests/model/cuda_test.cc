// Whole models on CUDA, where the build has it, beside the CPU.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/model/tiny_target.h"
#include "tests/support/backends.h"
#include "tests/support/compare.h"

namespace strata::test {
namespace {

struct Loaded {
    TinyTarget cpu;
    std::unique_ptr<model::Target> cuda;

    Loaded(const TestBackend& backend, const TinyTarget::Options& options) : cpu(options) {
        auto file = gguf::File::open(cpu.path());
        STRATA_CHECK(file.ok());
        auto loaded = model::Target::load(std::move(file).value(), *backend.backend.device,
                                          backend.backend.ops, options.rows_max, options.ngram);
        if (!loaded.ok()) ADD_FAILURE() << loaded.error().message;
        cuda = std::move(loaded).value();
    }
};

// Logits of all tokens in windows of `rows`.
std::vector<float> run(model::Target& target, model::Sequence& sequence,
                       std::span<const std::int32_t> tokens, std::size_t rows) {
    std::vector<float> logits;
    while (!tokens.empty()) {
        const std::size_t now = std::min(rows, tokens.size());
        model::StepRequest request;
        request.tokens = tokens.first(now);
        request.window = true;
        request.logits = model::LogitRows::all;
        const auto result = target.step(sequence, request);
        if (!result.ok()) {
            ADD_FAILURE() << result.error().message;
            return {};
        }
        append(logits, std::vector<float>(result->logits.data,
                                          result->logits.data + result->logits.size()));
        target.commit(sequence, static_cast<std::int64_t>(now));
        tokens = tokens.subspan(now);
    }
    return logits;
}

TEST(CudaModel, has_the_logits_of_the_cpu_and_the_same_in_any_window) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr) GTEST_SKIP() << "a build without CUDA";
    TinyTarget::Options options;
    options.rows_max = 16;
    Loaded models(*backend, options);
    const std::int64_t width = models.cpu->config().vocabulary;
    // Long enough for sparse attention to leave blocks out.
    const Tokens tokens = random_tokens("cuda", 40, models.cpu->config());
    const std::span<const std::int32_t> all(tokens);
    const model::SequenceOptions sequences{256, op::CacheType::q8_0, false};
    model::Sequence on_cpu = models.cpu.sequence(false, 256, sequences.cache);
    const auto want = run(*models.cpu, on_cpu, all, 16);
    auto made = models.cuda->make_sequence(sequences);
    ASSERT_TRUE(made.ok());
    model::Sequence sequence = std::move(made).value();
    auto got = run(*models.cuda, sequence, all.first(33), 11);
    append(got, run(*models.cuda, sequence, all.subspan(33), 1));
    expect_close("logits", got, want, width, Tolerance::recurrence());
    auto again = models.cuda->make_sequence(sequences);
    ASSERT_TRUE(again.ok());
    model::Sequence other = std::move(again).value();
    expect_same_bits("in other windows", run(*models.cuda, other, all, 16), got);
}

TEST(CudaModel, of_blocks_has_logits_near_those_of_the_cpu) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr) GTEST_SKIP() << "a build without CUDA";
    TinyTarget::Options options;
    options.type = quant::Type::q8_0;
    Loaded models(*backend, options);
    const Tokens tokens = random_tokens("cuda blocks", 6, models.cpu->config());
    model::Sequence on_cpu = models.cpu.sequence();
    auto made = models.cuda->make_sequence({256, op::CacheType::f16, false});
    ASSERT_TRUE(made.ok());
    model::Sequence sequence = std::move(made).value();
    expect_close("logits", run(*models.cuda, sequence, tokens, 4),
                 run(*models.cpu, on_cpu, tokens, 4), models.cpu->config().vocabulary,
                 Tolerance::rounded_inputs());
}

TEST(CudaModel, picks_the_largest_of_logits_that_can_be_fetched) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr) GTEST_SKIP() << "a build without CUDA";
    Loaded models(*backend, {});
    const Tokens tokens = random_tokens("cuda picks", 4, models.cpu->config());
    const auto width = static_cast<std::size_t>(models.cpu->config().vocabulary);
    auto made = models.cuda->make_sequence({256, op::CacheType::f16, false});
    ASSERT_TRUE(made.ok());
    model::Sequence sequence = std::move(made).value();
    model::StepRequest request;
    request.tokens = tokens;
    request.window = true;
    request.logits = model::LogitRows::all;
    const auto whole = models.cuda->step(sequence, request);
    ASSERT_TRUE(whole.ok());
    const std::vector<float> want(whole->logits.data, whole->logits.data + whole->logits.size());
    models.cuda->drop(sequence);
    request.picks = model::Picks::list;
    const auto picked = models.cuda->step(sequence, request);
    ASSERT_TRUE(picked.ok());
    ASSERT_EQ(picked->picked.size(), tokens.size());
    EXPECT_EQ(picked->logits.rows, 0);
    std::vector<std::int32_t> picks;
    std::vector<op::Candidate> second;
    for (const model::RowPick& pick : picked->picked) {
        picks.push_back(pick.largest.token);
        EXPECT_EQ(pick.best[0].token, pick.largest.token);
        second.push_back(pick.best[1]);
    }
    for (std::size_t t = 0; t < tokens.size(); ++t) {
        const auto row =
            slice(want, static_cast<std::int64_t>(t), 1, static_cast<std::int64_t>(width));
        const auto fetched = models.cuda->fetch_logits(static_cast<std::int64_t>(t));
        expect_same_bits("row", {fetched.begin(), fetched.end()}, row);
        EXPECT_EQ(picks[t], std::max_element(row.begin(), row.end()) - row.begin());
        const auto above = [&](float logit) { return logit > second[t].logit; };
        EXPECT_EQ(std::count_if(row.begin(), row.end(), above), 1);
        EXPECT_EQ(second[t].logit, row[static_cast<std::size_t>(second[t].token)]);
    }
}

// Rows of prompts have the same bits wherever the prompt is cut, so a state that comes back goes on
// as one that was read in one piece.
TEST(CudaModel, goes_on_from_a_state_in_two_parts_as_from_a_cold_start) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr) GTEST_SKIP() << "a build without CUDA";
    Loaded models(*backend, {});
    model::Target& target = *models.cuda;
    const Tokens tokens = random_tokens("cuda checkpoint", 18, target.config());
    const std::span<const std::int32_t> all(tokens);
    const auto read = [&](model::Sequence& sequence, std::span<const std::int32_t> rows) {
        model::StepRequest request;
        request.tokens = rows;
        ASSERT_TRUE(target.step(sequence, request).ok());
        target.commit(sequence, std::ssize(rows));
    };
    const auto empty = [&] {
        return std::move(target.make_sequence({256, op::CacheType::f16, true})).value();
    };
    model::Sequence first = empty();
    read(first, all.first(9));
    const std::string rows = target.save_rows(first, 0);
    const std::string moment = target.save_moment(first);
    read(first, all.subspan(9, 2));
    model::Sequence second = empty();
    target.restore_rows(second, 0, 9, rows);
    target.restore_moment(second, all.first(9), moment);
    read(second, all.subspan(9));
    target.restore_moment(first, all.first(9), moment);  // its rows are in place
    read(first, all.subspan(9));
    model::Sequence cold = empty();
    read(cold, all);
    const std::string want = target.save(cold);
    EXPECT_EQ(target.save(second), want);
    EXPECT_EQ(target.save(first), want);
}

TEST(CudaModel, guesses_what_the_cpu_guesses) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr) GTEST_SKIP() << "a build without CUDA";
    Loaded models(*backend, {});
    const Tokens tokens = random_tokens("cuda guesses", 9, models.cpu->config());
    model::Sequence on_cpu = models.cpu.sequence(true);
    auto made = models.cuda->make_sequence({256, op::CacheType::f16, true});
    ASSERT_TRUE(made.ok());
    model::Sequence sequence = std::move(made).value();
    run(*models.cpu, on_cpu, tokens, 9);
    run(*models.cuda, sequence, tokens, 9);
    const auto want = models.cpu->draft(on_cpu, 17, 4, 0);
    const auto got = models.cuda->draft(sequence, 17, 4, 0);
    ASSERT_TRUE(want.ok());
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->path, want->path);
    expect_close("confidence", got->confidence, want->confidence, 4, Tolerance::recurrence());
}

}  // namespace
}  // namespace strata::test
