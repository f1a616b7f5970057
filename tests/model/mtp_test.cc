// The MTP layer's cells and chains of guesses.

#include <gtest/gtest.h>

#include <algorithm>

#include "gguf/writer.h"
#include "tests/model/tiny_target.h"
#include "tests/support/compare.h"

namespace strata::test {
namespace {

TEST(Mtp, guesses_do_not_depend_on_how_the_context_was_read) {
    TinyTarget target;
    const Tokens tokens = random_tokens("context", 60, target->config());
    model::Sequence whole = target.sequence(true);
    target.run(whole, tokens, 64, false);
    const auto want = target->draft(whole, 17, 5, 0);
    ASSERT_TRUE(want.ok());
    ASSERT_EQ(want->path.size(), 5u);
    for (const std::int64_t rows : {1, 2, 3, 7}) {
        model::Sequence sequence = target.sequence(true);
        target.run(sequence, tokens, rows, true);
        const auto got = target->draft(sequence, 17, 5, 0);
        ASSERT_TRUE(got.ok());
        EXPECT_EQ(got->path, want->path) << rows;
        EXPECT_EQ(got->confidence, want->confidence) << rows;
    }
}

TEST(Mtp, guesses_do_not_depend_on_how_many_rows_wait_for_their_cells) {
    TinyTarget target;
    const Tokens tokens = random_tokens("waiting", 60, target->config());
    const auto guess = [&](std::int64_t bytes, std::int64_t behind) {
        model::Sequence sequence =
            target->make_sequence({.context = 256, .mtp = true, .mtp_waiting_bytes = bytes})
                .value();
        target.run(sequence, tokens, 7, true);
        EXPECT_EQ(sequence.mtp_behind(), behind) << bytes;
        model::MtpDraft draft = target->draft(sequence, 17, 5, 0).value();
        EXPECT_EQ(sequence.mtp_behind(), 0) << bytes;
        return draft;
    };
    const model::MtpDraft all = guess(model::kMtpWaitingBytes, 59);
    // Of 32 rows the windows after 28 and 56 rows find no room: then one row and their own wait.
    const model::MtpDraft few = guess(0, 4);
    EXPECT_EQ(few.path, all.path);
    EXPECT_EQ(few.confidence, all.confidence);
}

// SPEC-07: around sizes that a cache could be rounded up to.
TEST(Mtp, guesses_do_not_depend_on_the_contexts_size) {
    TinyTarget target({.change = [](model::Config& config) { config.context = 4096; }});
    const Tokens tokens = random_tokens("sizes", 240, target->config());
    const auto guess = [&](std::int64_t context, op::CacheType cache) {
        model::Sequence sequence = target.sequence(true, context, cache);
        target.run(sequence, tokens, 64, false);
        return target->draft(sequence, 17, 7, 0).value();
    };
    for (const op::CacheType cache : {op::CacheType::f16, op::CacheType::q8_0}) {
        const model::MtpDraft want = guess(4096, cache);
        ASSERT_EQ(want.path.size(), 7u);
        for (const std::int64_t context : {247, 255, 256, 257, 511, 512, 513, 2047, 2048, 2049}) {
            const model::MtpDraft got = guess(context, cache);
            EXPECT_EQ(got.path, want.path) << context;
            EXPECT_EQ(got.confidence, want.confidence) << context;
        }
    }
}

TEST(Mtp, guesses_leave_no_trace) {
    TinyTarget target;
    const Tokens tokens = random_tokens("trace", 40, target->config());
    const std::span<const std::int32_t> all(tokens);
    for (std::int64_t length = 1; length < 14; ++length) {
        model::Sequence sequence = target.sequence(true);
        target.run(sequence, all.first(length), 64, false);
        const std::string before = target->save(sequence);
        for (const std::int64_t guesses : {1, 2, 7}) {
            ASSERT_TRUE(target->draft(sequence, 3, guesses, 0).ok());
            EXPECT_EQ(target->save(sequence), before) << length << ' ' << guesses;
        }
        model::Sequence untouched = target.sequence(true);
        target.run(untouched, all.first(length), 64, false);
        target.run(sequence, all.subspan(length), 64, false);
        target.run(untouched, all.subspan(length), 64, false);
        EXPECT_EQ(target->save(sequence), target->save(untouched)) << length;
    }
}

TEST(Mtp, a_chain_agrees_with_the_cells_of_the_text_it_guessed) {
    TinyTarget target;
    const std::int64_t width = target->config().vocabulary;
    const Tokens tokens = random_tokens("cells", 30, target->config());
    model::Sequence sequence = target.sequence(true);
    target.run(sequence, tokens, 64, false);
    const auto draft = target->draft(sequence, 5, 1, 0, {.keep_logits = true});
    ASSERT_TRUE(draft.ok());
    const std::vector<float> guess(draft->logits.data, draft->logits.data + width);
    // The first guess reads the trunk's own residual, so it is the cell that the next commit runs.
    std::vector<float> cells;
    const Tokens anchor = {5};
    target.step(sequence, anchor, true);
    const model::LogitSink take = [&](MatrixView<const float> rows) -> Status {
        append(cells, std::vector<float>(rows.data, rows.data + rows.size()));
        return Ok{};
    };
    ASSERT_TRUE(target->commit(sequence, 1, take).ok());
    expect_same_bits("first guess", cells, guess);
}

// SPEC-16: each further guess reads the layer's own residual, in all streams, whatever the chain's
// length. That its numbers are the references' is tests/cli/answers_test's.
TEST(Mtp, a_chain_of_any_depth_begins_as_the_deepest) {
    TinyTarget target;
    const auto width = static_cast<std::size_t>(target->config().vocabulary);
    const Tokens tokens = random_tokens("depth", 30, target->config());
    model::Sequence sequence = target.sequence(true);
    target.run(sequence, tokens, 64, false);
    const auto chain = [&](std::int64_t depth) {
        const auto draft = target->draft(sequence, 5, depth, 0, {.keep_logits = true});
        EXPECT_EQ(std::ssize(draft->path), depth);
        return std::pair(draft->path, std::vector<float>(draft->logits.data,
                                                         draft->logits.data + depth * width));
    };
    const auto [path, logits] = chain(5);
    for (std::int64_t depth = 1; depth < 5; ++depth) {
        const auto [shorter, of_it] = chain(depth);
        EXPECT_EQ(shorter, Tokens(path.begin(), path.begin() + depth));
        expect_same_bits("depth", of_it,
                         {logits.begin(), logits.begin() + depth * static_cast<long>(width)});
    }
}

TEST(Mtp, of_the_first_tokens_alone_the_likeliest_of_them_is_guessed) {
    TinyTarget target;
    const Tokens tokens = random_tokens("first", 30, target->config());
    model::Sequence sequence = target.sequence(true);
    target.run(sequence, tokens, 64, false);
    const auto all = target->draft(sequence, 5, 1, 0, {.keep_logits = true});
    ASSERT_TRUE(all.ok());
    const std::vector<float> logits(all->logits.data,
                                    all->logits.data + target->config().vocabulary);
    for (const std::int32_t end : {1, 17, 100, 100'000}) {
        const auto known = std::min(static_cast<std::size_t>(end), logits.size());
        const auto want = std::max_element(logits.begin(), logits.begin() + known) - logits.begin();
        const auto got = target->draft(sequence, 5, 1, 0, {.token_end = end});
        ASSERT_TRUE(got.ok());
        EXPECT_EQ(got->path, Tokens{static_cast<std::int32_t>(want)}) << end;
    }
}

TEST(Mtp, a_chain_ends_before_a_guess_below_the_floor) {
    TinyTarget target;
    const Tokens tokens = random_tokens("floor", 30, target->config());
    model::Sequence sequence = target.sequence(true);
    target.run(sequence, tokens, 64, false);
    const auto whole = target->draft(sequence, 5, 6, 0);
    ASSERT_TRUE(whole.ok());
    const std::vector<float> confidence = whole->confidence;
    ASSERT_EQ(confidence.size(), 6u);
    for (const float floor : confidence) {
        std::size_t kept = 0;
        while (kept < confidence.size() && confidence[kept] >= floor) ++kept;
        const auto cut = target->draft(sequence, 5, 6, floor);
        ASSERT_TRUE(cut.ok());
        EXPECT_EQ(cut->path.size(), kept);
    }
    const auto none = target->draft(sequence, 5, 6, 1.5f);
    ASSERT_TRUE(none.ok());
    EXPECT_TRUE(none->path.empty());
}

TEST(Mtp, a_layer_of_another_model_is_refused_for_its_width_and_not_for_an_ngram_block) {
    const TinyTarget target;
    TempDir folder;
    const gguf::File file = gguf::File::open(target.path()).value();
    const auto written = [&](bool wide) {
        gguf::Writer writer;
        for (const auto& [key, value] : file.metadata()) writer.set(key, value);
        if (wide) writer.set("qwen4exp.embedding_length", gguf::Value::of(std::uint32_t{192}));
        // For a vocabulary of two.
        const std::vector<std::uint64_t> multipliers(3, std::uint64_t{1} << 61);
        writer.set("qwen4exp.ple.layer_multipliers", gguf::Value::array(multipliers));
        const std::uint64_t shape[] = {1};
        EXPECT_TRUE(writer.add_tensor("any", quant::Type::f32, shape).ok());
        EXPECT_TRUE(writer.begin(folder / "layer.gguf").ok());
        EXPECT_TRUE(writer.write_tensor_data(std::vector<std::byte>(4)).ok());
        EXPECT_TRUE(writer.commit().ok());
        return gguf::File::open(folder / "layer.gguf").value();
    };
    const model::Config config = model::config_from_gguf(file).value();
    EXPECT_TRUE(model::mtp_layer_from_gguf(written(false), config).ok());
    const auto refused = model::mtp_layer_from_gguf(written(true), config);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("width is 192, wanted the model's 64"),
              std::string::npos)
        << refused.error().message;
}

TEST(Mtp, what_cannot_be_guessed_is_an_error) {
    TinyTarget target;
    model::Sequence empty = target.sequence(true);
    EXPECT_FALSE(target->draft(empty, 1, 1, 0).ok());
    model::Sequence without = target.sequence(false);
    const Tokens tokens = {1, 2, 3};
    target.run(without, tokens, 64, false);
    EXPECT_FALSE(target->draft(without, 1, 1, 0).ok());
    model::Sequence full = target.sequence(true, 4);
    target.run(full, tokens, 64, false);
    EXPECT_TRUE(target->draft(full, 1, 2, 0).ok());
    EXPECT_FALSE(target->draft(full, 1, 3, 0).ok()) << "no room";
    EXPECT_FALSE(target->draft(full, 331, 1, 0).ok()) << "no token";
    TinyTarget plain({.change = [](model::Config& config) { config.mtp_layers = 0; }});
    EXPECT_FALSE(plain->make_sequence({16, op::CacheType::f16, true}).ok());
}

}  // namespace
}  // namespace strata::test
