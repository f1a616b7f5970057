// Steps on sequences: how a text is cut into steps never shows, and a dropped step leaves no trace.

#include <gtest/gtest.h>

#include "tests/model/tiny_target.h"
#include "tests/support/compare.h"

namespace strata::test {
namespace {

constexpr std::int64_t kTokens = 70;  // past the index budget, several end tokens inside

std::vector<float> row(const std::vector<float>& logits, std::int64_t r, std::int64_t width) {
    return slice(logits, r, 1, width);
}

TEST(Steps, chunks_of_any_size_give_the_same_bits) {
    TinyTarget target;
    const Tokens tokens = random_tokens("chunks", kTokens, target->config());
    model::Sequence alone = target.sequence();
    const auto want = target.run(alone, tokens, 1, true);
    const std::string state = target->save(alone);
    for (const std::int64_t rows : {2, 3, 7, 32, 64}) {
        model::Sequence sequence = target.sequence();
        const std::string label = "chunks of " + std::to_string(rows);
        expect_same_bits(label, target.run(sequence, tokens, rows, false), want);
        EXPECT_EQ(target->save(sequence), state) << label;
    }
}

TEST(Steps, windows_of_any_size_give_the_same_bits) {
    const struct {
        quant::Type type;
        op::CacheType cache;
    } cases[] = {{quant::Type::f32, op::CacheType::f16},
                 {quant::Type::q8_0, op::CacheType::q8_0},
                 {quant::Type::q4_0, op::CacheType::f32}};
    for (const auto& [type, cache] : cases) {
        TinyTarget target({.type = type});
        const Tokens tokens = random_tokens("windows", kTokens, target->config());
        model::Sequence alone = target.sequence(true, 256, cache);
        const auto want = target.run(alone, tokens, 1, true);
        const std::string state = target->save(alone);
        for (const std::int64_t rows : {2, 3, 5, 8, 16}) {
            model::Sequence sequence = target.sequence(true, 256, cache);
            const std::string label = "windows of " + std::to_string(rows);
            expect_same_bits(label, target.run(sequence, tokens, rows, true), want);
            EXPECT_EQ(target->save(sequence), state) << label;
        }
    }
}

TEST(Steps, the_chunked_form_differs_by_rounding_alone) {
    TinyTarget target;
    const Tokens tokens = random_tokens("chunked", kTokens, target->config());
    model::Sequence recurrent = target.sequence(false, 256, op::CacheType::f32);
    model::Sequence chunked = target.sequence(false, 256, op::CacheType::f32);
    const auto want = target.run(recurrent, tokens, 64, false);
    const auto got = target.run(chunked, tokens, 64, false, op::DeltaForm::chunked);
    expect_close("chunked form", got, want, target->config().vocabulary, Tolerance::recurrence());
}

TEST(Steps, any_part_of_a_window_can_be_kept) {
    TinyTarget target;
    const std::int64_t width = target->config().vocabulary;
    const Tokens tokens = random_tokens("parts", kTokens, target->config());
    const std::span<const std::int32_t> all(tokens);
    // The state after each number of plain steps, and the logits of each.
    std::vector<std::string> states;
    model::Sequence plain = target.sequence(true);
    std::vector<float> logits;
    for (std::int64_t n = 0; n < kTokens; ++n) {
        states.push_back(target->save(plain));
        append(logits, target.run(plain, all.subspan(n, 1), 1, true));
    }
    model::Sequence windowed = target.sequence(true);
    // Starts at every place in a block, with an end token in some windows and before others.
    for (std::int64_t start = 20; start < 36; ++start) {
        for (const std::int64_t rows : {2, 3, 5, 8}) {
            for (std::int64_t kept = 0; kept <= rows; ++kept) {
                ASSERT_TRUE(target->restore(windowed, states[start]).ok());
                target.step(windowed, all.subspan(start, rows), true);
                target->commit(windowed, kept);
                const std::string label = std::to_string(kept) + " of " + std::to_string(rows) +
                                          " at " + std::to_string(start);
                EXPECT_EQ(target->save(windowed), states[start + kept]) << label;
                const auto next = target.run(windowed, all.subspan(start + kept, 1), 1, true);
                expect_same_bits(label, next, row(logits, start + kept, width));
                EXPECT_EQ(target->save(windowed), states[start + kept + 1]) << label;
            }
        }
    }
}

TEST(Steps, a_dropped_step_leaves_no_trace) {
    TinyTarget target;
    const Tokens tokens = random_tokens("dropped", kTokens, target->config());
    const std::span<const std::int32_t> all(tokens);
    for (std::int64_t start = 0; start < 24; ++start) {
        model::Sequence sequence = target.sequence(true);
        target.run(sequence, all.first(start), 64, false);
        const std::string before = target->save(sequence);
        target.step(sequence, all.subspan(40, 7), true);
        target->drop(sequence);
        EXPECT_EQ(target->save(sequence), before) << "a window after " << start;
        target.step(sequence, all.subspan(30, 40), false);
        target->drop(sequence);
        EXPECT_EQ(target->save(sequence), before) << "a chunk after " << start;
    }
}

TEST(Steps, checkpoints_restore_at_every_offset) {
    TinyTarget target;
    const Tokens tokens = random_tokens("checkpoints", kTokens, target->config());
    const std::span<const std::int32_t> all(tokens);
    // The cache of eight bits, whose rows end with their scales.
    const auto made = [&] { return target.sequence(true, 256, op::CacheType::q8_0); };
    model::Sequence cold = made();
    target.run(cold, all, 64, false);
    const std::string end = target->save(cold);
    // Twelve in a row see every offset in blocks of 4 and in the n-gram convolution's steps of 3.
    for (std::int64_t at = 0; at < 24; ++at) {
        model::Sequence first = made();
        target.run(first, all.first(at), 5, true);
        const std::string saved = target->save(first);
        model::Sequence second = made();
        target.run(second, all.subspan(33, 30), 64, false);  // what was there must not matter
        ASSERT_TRUE(target->restore(second, saved).ok());
        EXPECT_EQ(target->save(second), saved) << at;
        target.run(second, all.subspan(at), 64, false);
        EXPECT_EQ(target->save(second), end) << at;
    }
}

TEST(Steps, a_reset_sequence_is_a_new_one) {
    TinyTarget target;
    const Tokens tokens = random_tokens("reset", kTokens, target->config());
    const std::span<const std::int32_t> all(tokens);
    model::Sequence fresh = target.sequence(true);
    const auto want = target.run(fresh, all.first(30), 64, false);
    model::Sequence used = target.sequence(true);
    target.run(used, all.subspan(10), 64, false);
    target->reset(used);
    expect_same_bits("after a reset", target.run(used, all.first(30), 64, false), want);
    EXPECT_EQ(target->save(used), target->save(fresh));
}

TEST(Steps, threads_change_no_bit) {
    TinyTarget one({.threads = 1});
    TinyTarget three({.threads = 3});
    const Tokens tokens = random_tokens("threads", kTokens, one->config());
    model::Sequence a = one.sequence(true);
    model::Sequence b = three.sequence(true);
    expect_same_bits("three threads", three.run(b, tokens, 64, false),
                     one.run(a, tokens, 64, false));
    EXPECT_EQ(three->save(b), one->save(a));
}

// NUM-06
TEST(Steps, scratch_memory_that_is_nan_changes_no_bit) {
    for (const quant::Type type : {quant::Type::bf16, quant::Type::q4_0}) {
        TinyTarget plain({.type = type, .threads = 2});
        TinyTarget poisoned({.type = type, .threads = 2, .poison = true});
        const Tokens tokens = random_tokens("poison", 70, plain->config());
        for (const auto& [rows, window, form] : {std::tuple(64, false, op::DeltaForm::recurrent),
                                                 std::tuple(64, false, op::DeltaForm::chunked),
                                                 std::tuple(5, true, op::DeltaForm::recurrent)}) {
            model::Sequence a = plain.sequence();
            model::Sequence b = poisoned.sequence();
            expect_same_bits("rows " + std::to_string(rows),
                             poisoned.run(b, tokens, rows, window, form),
                             plain.run(a, tokens, rows, window, form));
        }
    }
}

TEST(Steps, attention_is_dense_exactly_up_to_the_budget) {
    TinyTarget sparse;
    TinyTarget dense({.change = [](model::Config& config) { config.index_budget = 4096; }});
    const model::Config& config = sparse->config();
    const Tokens tokens = random_tokens("budget", kTokens, config);
    const std::int64_t same = config.index_budget + config.index_ratio - 1;
    model::Sequence a = sparse.sequence();
    model::Sequence b = dense.sequence();
    const auto sparse_logits = sparse.run(a, tokens, 64, false);
    const auto dense_logits = dense.run(b, tokens, 64, false);
    expect_same_bits("up to the budget", slice(sparse_logits, 0, same, config.vocabulary),
                     slice(dense_logits, 0, same, config.vocabulary));
    EXPECT_NE(slice(sparse_logits, same, kTokens - same, config.vocabulary),
              slice(dense_logits, same, kTokens - same, config.vocabulary));
}

TEST(Steps, a_table_in_an_attention_layer_works_the_same) {
    TinyTarget target({.change = [](model::Config& config) { config.ngram.layer = 3; }});
    const Tokens tokens = random_tokens("table", kTokens, target->config());
    model::Sequence a = target.sequence();
    model::Sequence b = target.sequence();
    expect_same_bits("table in layer 3", target.run(a, tokens, 64, false),
                     target.run(b, tokens, 3, true));
}

// MEM-03
TEST(Steps, a_model_that_does_not_fit_is_refused_with_both_numbers) {
    TinyTarget target;
    const gguf::File& file = target->file();
    std::uint64_t all = 0;
    for (const gguf::Tensor& tensor : file.tensors()) {
        if (tensor.name != "per_layer_token_embd.weight") all += tensor.data.size();
    }
    EXPECT_EQ(model::weight_bytes(file, target->config()), all);
    EXPECT_TRUE(model::check_room(file, target->config(), all).ok());
    const Status status = model::check_room(file, target->config(), all - 1);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find(std::to_string(all) + " bytes"), std::string::npos);
    EXPECT_NE(status.error().message.find(std::to_string(all - 1) + " are available"),
              std::string::npos);
}

TEST(Steps, bad_steps_are_errors_that_change_nothing) {
    TinyTarget target;
    model::Sequence sequence = target.sequence(false, 8);
    const Tokens good = {1, 2, 3};
    target.run(sequence, good, 3, false);
    const std::string before = target->save(sequence);
    const auto fails = [&](const Tokens& tokens, bool window, const std::string& part) {
        model::StepRequest request;
        request.tokens = tokens;
        request.window = window;
        const auto result = target->step(sequence, request);
        ASSERT_FALSE(result.ok());
        EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
        EXPECT_EQ(target->save(sequence), before);
    };
    const auto vocabulary = static_cast<std::int32_t>(target->config().vocabulary);
    fails({vocabulary}, true, "331");
    fails({-1}, true, "-1");
    fails({}, false, "0 rows");
    fails(Tokens(6, 1), false, "context of 8");
    fails(Tokens(17, 1), true, "17 rows");
}

TEST(Steps, foreign_checkpoints_are_errors_that_change_nothing) {
    TinyTarget target;
    const Tokens tokens = random_tokens("foreign", 21, target->config());
    model::Sequence sequence = target.sequence();
    target.run(sequence, tokens, 64, false);
    const std::string saved = target->save(sequence);
    model::Sequence mtp = target.sequence(true);
    EXPECT_FALSE(target->restore(mtp, saved).ok()) << "other options";
    model::Sequence small = target.sequence(false, 20);
    EXPECT_FALSE(target->restore(small, saved).ok()) << "no room";
    model::Sequence wide = target.sequence(false, 256, op::CacheType::f32);
    const Status other = target->restore(wide, saved);
    ASSERT_FALSE(other.ok()) << "another cache type";
    EXPECT_EQ(other.error().message, "a checkpoint holds keys and values in f16, wanted f32");
    TinyTarget::Options exact;
    exact.type = quant::Type::f32;
    TinyTarget of_other_bytes(exact);
    model::Sequence same_sizes = of_other_bytes.sequence();
    const Status foreign = of_other_bytes->restore(same_sizes, saved);
    ASSERT_FALSE(foreign.ok()) << "another file";
    EXPECT_NE(foreign.error().message.find("the files of this model"), std::string::npos);
    TinyTarget again;
    model::Sequence of_equal_bytes = again.sequence();
    EXPECT_TRUE(again->restore(of_equal_bytes, saved).ok());
    for (std::size_t bytes = 0; bytes < saved.size(); bytes += 97) {
        EXPECT_FALSE(target->restore(sequence, std::string_view(saved).substr(0, bytes)).ok())
            << bytes;
    }
    EXPECT_EQ(target->save(sequence), saved);
}

}  // namespace
}  // namespace strata::test
