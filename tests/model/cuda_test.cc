// Whole models on CUDA, where the build has it, beside the CPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

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
    request.picks = model::Picks::largest;
    const auto picked = models.cuda->step(sequence, request);
    ASSERT_TRUE(picked.ok());
    ASSERT_EQ(picked->picked.size(), tokens.size());
    EXPECT_EQ(picked->logits.rows, 0);
    std::vector<std::int32_t> picks;
    for (const model::RowPick& pick : picked->picked) picks.push_back(pick.largest.token);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
        const auto row =
            slice(want, static_cast<std::int64_t>(t), 1, static_cast<std::int64_t>(width));
        const auto fetched = models.cuda->fetch_logits(static_cast<std::int64_t>(t));
        expect_same_bits("row", {fetched.begin(), fetched.end()}, row);
        EXPECT_EQ(picks[t], std::max_element(row.begin(), row.end()) - row.begin());
    }
}

// The text after a token, a row at a time, and the saved state before each token of it.
struct Plain {
    Tokens text;
    std::vector<std::string> states;
};

// What is asked of rows of which the first is for token `position`; without draws the largest.
void ask(model::StepRequest& request, std::int64_t position, model::Draws* draws) {
    request.picks = draws == nullptr ? model::Picks::largest : model::Picks::draw;
    request.draws = draws;
    if (draws != nullptr) draws->rule.position = position;
}

Plain plain_text(model::Target& target, model::Sequence& sequence, std::int32_t first,
                 std::size_t count, model::Draws* draws) {
    Plain made;
    made.text = {first};
    while (made.text.size() < count) {
        made.states.push_back(target.save(sequence));
        model::StepRequest request;
        request.tokens = std::span(made.text).last(1);
        request.window = true;
        ask(request, std::ssize(made.text), draws);
        const auto result = target.step(sequence, request);
        STRATA_CHECK(result.ok());
        const model::RowPick& pick = result->picked.front();
        made.text.push_back(draws == nullptr ? pick.largest.token : pick.drawn[1].token);
        target.commit(sequence, 1);
    }
    return made;
}

constexpr std::size_t kPlainRows = 4;

// The first rows of a text, the first of them for its second token.
model::StepRequest window_of(const Tokens& tokens, model::Draws* draws) {
    model::StepRequest request;
    request.tokens = tokens;
    request.window = true;
    request.logits = model::LogitRows::all;
    ask(request, 1, draws);
    return request;
}

// As many tokens of a text as a window has, wrong from row `right` on.
Tokens guessed(const Tokens& text, std::size_t right) {
    Tokens window(text.begin(), text.begin() + kPlainRows);
    if (right < kPlainRows) window[right] = window[right] == 5 ? 6 : 5;
    return window;
}

// The state after `kept` rows of a window; what the commit took.
struct Committed {
    std::string state;
    CudaCounts work;
};

Committed commit_window(model::Target& target, model::Sequence& sequence,
                        const model::StepRequest& request, std::int64_t kept) {
    STRATA_CHECK(target.step(sequence, request).ok());
    const auto started = cuda_counts();
    target.commit(sequence, kept);
    const auto ended = cuda_counts();
    return {target.save(sequence), started ? *ended - *started : CudaCounts{}};
}

// Whatever the device counted, and however many rows are kept in the end.
TEST(CudaModel, rows_that_the_device_accepts_are_committed_without_work) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr) GTEST_SKIP() << "a build without CUDA";
    Loaded models(*backend, {});
    model::Target& target = *models.cuda;
    auto sequence = std::move(target.make_sequence({256, op::CacheType::f16, false})).value();
    const Plain plain = plain_text(target, sequence, 3, kPlainRows + 2, nullptr);
    // Else the text would end a row earlier.
    ASSERT_NE(plain.text[1], plain.text[2]);
    struct Case {
        std::size_t right;  // rows that plain decoding has
        std::size_t told;   // by the device: fewer where the text ends
        std::size_t kept;
        std::size_t ends_after = 0;  // so many rows; 0: not
        std::size_t place = 0;       // of that token among those that end a text
    };
    for (const Case& one :
         {Case{2, 2, 2}, Case{2, 2, 1}, Case{2, 2, 4}, Case{4, 4, 4}, Case{4, 4, 3},
          Case{4, 2, 2, 2, op::kEndTokensMax - 1}, Case{4, 4, 4, 2, op::kEndTokensMax}}) {
        const Tokens window = guessed(plain.text, one.right);
        Tokens ends(one.place + 1, -1);
        if (one.ends_after > 0) ends.back() = plain.text[one.ends_after];
        const auto kept = static_cast<std::int64_t>(one.kept);
        model::StepRequest request = window_of(window, nullptr);
        const auto commit = [&] {
            STRATA_CHECK(target.restore(sequence, plain.states.front()).ok());
            return commit_window(target, sequence, request, kept);
        };
        const std::string want = one.kept <= one.right ? plain.states[one.kept] : commit().state;
        request.accept = true;
        request.ends = ends;
        const auto got = commit();
        const std::string label = std::to_string(one.kept) + " kept of " +
                                  std::to_string(one.told) + " told, " + std::to_string(one.right) +
                                  " right";
        EXPECT_EQ(got.state, want) << label;
        if (one.kept == one.told) {
            EXPECT_EQ(got.work.kernels, 0) << label;
        }
    }
}

TEST(CudaModel, rows_that_the_device_draws_and_accepts_are_dropped_or_committed_without_work) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr) GTEST_SKIP() << "a build without CUDA";
    Loaded models(*backend, {});
    model::Target& target = *models.cuda;
    auto sequence = std::move(target.make_sequence({256, op::CacheType::f16, false})).value();
    model::Draws draws;
    draws.rule.temperature = 1;
    draws.rule.seed = 7;
    constexpr std::size_t kRight = 2;
    const Plain plain = plain_text(target, sequence, 3, kPlainRows, &draws);
    const Tokens window = guessed(plain.text, kRight);
    model::StepRequest request = window_of(window, &draws);
    request.accept = true;
    ASSERT_TRUE(target.restore(sequence, plain.states.front()).ok());
    ASSERT_TRUE(target.step(sequence, request).ok());
    target.drop(sequence);
    EXPECT_EQ(target.save(sequence), plain.states.front());
    const auto got = commit_window(target, sequence, request, kRight);
    EXPECT_EQ(got.state, plain.states[kRight]);
    EXPECT_EQ(got.work.kernels, 0);
}

TEST(CudaModel, rows_of_a_step_without_a_trace_are_kept_together) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr) GTEST_SKIP() << "a build without CUDA";
    Loaded models(*backend, {});
    model::Target& target = *models.cuda;
    auto sequence = std::move(target.make_sequence({256, op::CacheType::f16, false})).value();
    const Tokens tokens = random_tokens("cuda whole", 5, target.config());
    model::StepRequest request;
    request.tokens = tokens;
    ASSERT_TRUE(target.step(sequence, request).ok());
    EXPECT_DEATH(target.commit(sequence, 3), "broken invariant");
    EXPECT_DEATH(target.commit(sequence, 6), "broken invariant");
    target.commit(sequence, 5);
    EXPECT_EQ(sequence.length(), 5);
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

// The cells that a chain needs, and all of its guesses, though it may end early.
TEST(CudaModel, a_chain_of_guesses_is_one_launch) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr) GTEST_SKIP() << "a build without CUDA";
    Loaded models(*backend, {});
    const Tokens tokens = random_tokens("cuda chain", 12, models.cpu->config());
    model::Sequence on_cpu = models.cpu.sequence(true);
    auto sequence = std::move(models.cuda->make_sequence({256, op::CacheType::f16, true})).value();
    model::MtpChoice choice;
    choice.go_on = [](std::span<const std::int32_t>, std::span<const float>) { return true; };
    choice.at_once = 3;
    // Submitted, captured and launched, of each of two states that take turns.
    for (std::size_t at = 0; at < tokens.size(); at += 2) {
        const auto rows = std::span(tokens).subspan(at, 2);
        run(*models.cpu, on_cpu, rows, 2);
        run(*models.cuda, sequence, rows, 2);
        const auto want = models.cpu->draft(on_cpu, 17, 3, 0);
        const auto before = cuda_counts();
        const auto got = models.cuda->draft(sequence, 17, 3, 1e-9F, choice);
        const auto after = cuda_counts();
        ASSERT_TRUE(want.ok() && got.ok());
        EXPECT_EQ(got->path, want->path) << at;
        if (before && at == 10) {
            EXPECT_TRUE(is_one_launch(*after - *before))
                << testing::PrintToString(*after - *before);
        }
    }
}

TEST(CudaModel, a_chain_ends_where_it_would_guess_by_guess_however_many_are_computed_at_once) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr) GTEST_SKIP() << "a build without CUDA";
    Loaded models(*backend, {});
    const Tokens tokens = random_tokens("cuda ends", 3, models.cpu->config());
    auto sequence = std::move(models.cuda->make_sequence({256, op::CacheType::f16, true})).value();
    run(*models.cuda, sequence, tokens, 3);
    const auto all = models.cuda->draft(sequence, 17, 4, 0).value();
    const float least = *std::min_element(all.confidence.begin(), all.confidence.end());
    const auto below = std::find(all.confidence.begin(), all.confidence.end(), least);
    const auto kept = below - all.confidence.begin();
    for (const std::int64_t at_once : {1, 3, 16}) {
        model::MtpChoice choice;
        choice.at_once = at_once;
        const float floor = std::nextafter(least, 1.0F);
        const auto cut = models.cuda->draft(sequence, 17, 4, floor, choice).value();
        EXPECT_EQ(cut.path, Tokens(all.path.begin(), all.path.begin() + kept)) << at_once;
        EXPECT_EQ(cut.judged, kept + 1);
        EXPECT_EQ(cut.computed, std::min<std::int64_t>(4, (kept / at_once + 1) * at_once));
        std::vector<std::size_t> asked;
        choice.go_on = [&](std::span<const std::int32_t> chain, std::span<const float>) {
            asked.push_back(chain.size());
            return chain.size() < 2;
        };
        const auto two = models.cuda->draft(sequence, 17, 4, 0, choice).value();
        EXPECT_EQ(two.path, Tokens(all.path.begin(), all.path.begin() + 2)) << at_once;
        EXPECT_EQ(asked, (std::vector<std::size_t>{1, 2}));
    }
}

// NUM-06
TEST(CudaModel, scratch_memory_that_is_nan_changes_no_bit) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr) GTEST_SKIP() << "a build without CUDA";
    Loaded models(*backend, {});
    auto poisoned = poisoned_cuda_backend();
    ASSERT_TRUE(poisoned.ok());
    auto loaded =
        model::Target::load(gguf::File::open(models.cpu.path()).value(), *poisoned->device,
                            poisoned->ops, TinyTarget::Options{}.rows_max);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    const Tokens tokens = random_tokens("cuda poison", 14, models.cpu->config());
    const std::span<const std::int32_t> all(tokens);
    const auto work = [&](model::Target& target) {
        auto sequence = std::move(target.make_sequence({256, op::CacheType::f16, true})).value();
        model::StepRequest prompt;
        prompt.tokens = all.first(8);
        prompt.logits = model::LogitRows::last;
        const auto read = target.step(sequence, prompt).value();
        std::vector<float> out(read.logits.data, read.logits.data + read.logits.size());
        target.commit(sequence, 8);
        append(out, run(target, sequence, all.subspan(8), 3));
        append(out, target.draft(sequence, 17, 3, 0).value().confidence);
        return out;
    };
    expect_same_bits("poisoned", work(**loaded), work(*models.cuda));
}

// NUM-02: a conversation that is begun again differently, on a sequence that held another.
TEST(CudaModel, a_reset_sequence_is_a_new_one) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr) GTEST_SKIP() << "a build without CUDA";
    Loaded models(*backend, {});
    model::Target& target = *models.cuda;
    const model::SequenceOptions options{256, op::CacheType::f16, true};
    const Tokens before = random_tokens("cuda before", 21, target.config());
    Tokens after = random_tokens("cuda after", 10, target.config());
    std::copy_n(before.begin(), 5, after.begin());
    auto used = std::move(target.make_sequence(options)).value();
    run(target, used, before, 7);
    target.reset(used);
    auto fresh = std::move(target.make_sequence(options)).value();
    expect_same_bits("logits", run(target, used, after, 5), run(target, fresh, after, 5));
    EXPECT_EQ(target.save(used), target.save(fresh));
}

// MEM-06: kernels ask for no more than cards have, those of 99 KiB (8.6, 8.9, 12.0) and, where
// prompts have no route of their own, of 64 KiB (7.5). The bits are those of the largest.
TEST(CudaModel, runs_within_the_shared_memory_of_smaller_cards) {
    TestBackend* backend = cuda_backend();
    constexpr std::size_t kLargest = std::size_t{227} << 10;
    if (backend == nullptr || !limit_cuda_shared_bytes(kLargest)) GTEST_SKIP() << "a real device";
    TinyTarget cpu({.type = quant::Type::q8_0});
    const Tokens tokens = random_tokens("cuda limits", 20, cpu->config());
    const auto work = [&](std::size_t bytes, bool prompts) {
        limit_cuda_shared_bytes(bytes);
        op::Table ops = backend->backend.ops;
        if (!prompts) ops.prompts = nullptr;
        auto target = model::Target::load(gguf::File::open(cpu.path()).value(),
                                          *backend->backend.device, ops, 64)
                          .value();
        auto sequence = std::move(target->make_sequence({256, op::CacheType::f16, true})).value();
        std::vector<float> out;
        if (prompts) {
            model::StepRequest request;
            request.tokens = tokens;
            request.logits = model::LogitRows::all;
            const auto read = target->step(sequence, request);
            EXPECT_TRUE(read.ok()) << read.error().message;
            out.assign(read->logits.data, read->logits.data + read->logits.size());
            target->commit(sequence, std::ssize(tokens));
        }
        append(out, run(*target, sequence, tokens, 16));
        limit_cuda_shared_bytes(kLargest);
        return out;
    };
    expect_same_bits("99 KiB", work(std::size_t{99} << 10, true), work(kLargest, true));
    expect_same_bits("64 KiB", work(std::size_t{64} << 10, false), work(kLargest, false));
}

// Wherever in a text the device fails: the step that meets it ends with a sentence, so does every
// later one, and nothing hangs or ends the process.
TEST(CudaModel, a_device_that_fails_ends_steps_and_drafts_with_a_sentence) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr || !fail_cuda_after(-1)) GTEST_SKIP() << "a device that cannot fail";
    const auto told = [](const Status& status) {
        return !status.ok() && status.error().message.find(
                                   "CUDA 0 failed: an illegal memory "
                                   "access") != std::string::npos;
    };
    for (const int launches : {0, 1, 20}) {
        Loaded models(*backend, {});
        model::Target& target = *models.cuda;
        const Tokens tokens = random_tokens("fault", 4, target.config());
        model::Sequence sequence =
            std::move(target.make_sequence({256, op::CacheType::f16, true})).value();
        run(target, sequence, tokens, 4);
        ASSERT_TRUE(target.status().ok());
        fail_cuda_after(launches);
        model::StepRequest request;
        request.tokens = tokens;
        request.window = launches > 0;
        request.logits = model::LogitRows::all;
        const auto met = target.step(sequence, request);
        EXPECT_FALSE(met.ok()) << launches;
        EXPECT_TRUE(told(target.status()));
        EXPECT_EQ(sequence.length(), 4);
        fail_cuda_after(-1);  // what has failed stays so
        const auto again = target.step(sequence, request);
        ASSERT_FALSE(again.ok());
        EXPECT_TRUE(told(again.error()));
        EXPECT_FALSE(target.draft(sequence, 3, 2, 0).ok());
    }
}

TEST(CudaModel, a_device_that_fails_while_a_model_is_loaded_is_an_error) {
    TestBackend* backend = cuda_backend();
    if (backend == nullptr || !fail_cuda_after(-1)) GTEST_SKIP() << "a device that cannot fail";
    const TinyTarget cpu({.type = quant::Type::q8_0});
    fail_cuda_after(2);
    const auto loaded = model::Target::load(gguf::File::open(cpu.path()).value(),
                                            *backend->backend.device, backend->backend.ops, 16);
    fail_cuda_after(-1);
    ASSERT_FALSE(loaded.ok());
    EXPECT_NE(loaded.error().message.find("illegal memory access"), std::string::npos)
        << loaded.error().message;
}

}  // namespace
}  // namespace strata::test
