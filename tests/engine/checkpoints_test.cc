// States kept in memory: going on from one is going on from a cold start.
#include "engine/checkpoints.h"

#include <gtest/gtest.h>

#include "tests/model/tiny_target.h"

namespace strata::test {
namespace {

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 30;

// A sequence and what of it lies where checkpoints saved it.
struct Kept {
    Kept(TinyTarget& target, bool mtp) : target_(target), sequence(target.sequence(mtp)) {}

    void read(std::span<const std::int32_t> tokens) { target_.run(sequence, tokens, 16, false); }
    std::string state() { return target_->save(sequence); }
    void keep(Checkpoints& store) { store.keep(*target_, sequence, placed, {}); }
    bool resume(Checkpoints& store, std::span<const std::int32_t> prompt) {
        const auto* found = store.find(prompt, sequence.options().mtp, 0);
        if (found != nullptr) Checkpoints::restore(*found, *target_, sequence, placed);
        return found != nullptr;
    }
    std::int64_t length() const { return sequence.length(); }

    TinyTarget& target_;
    model::Sequence sequence;
    Checkpoints::Placed placed;
};

class CheckpointStore : public ::testing::TestWithParam<bool> {
  protected:
    std::span<const std::int32_t> first(std::size_t n) const { return std::span(tokens_).first(n); }
    // Checkpoints after 10, 31 and 75 tokens.
    void keep_three(Kept& run, Checkpoints& store) const {
        for (const std::size_t n : {10, 31, 75}) {
            run.read(first(n).subspan(static_cast<std::size_t>(run.length())));
            run.keep(store);
        }
    }

    TinyTarget target_;
    const Tokens tokens_ = random_tokens("checkpoints", 100, target_->config());
};

INSTANTIATE_TEST_SUITE_P(Mtp, CheckpointStore, testing::Bool());

// CACHE-03, NUM-02
TEST_P(CheckpointStore, what_comes_after_has_the_bits_of_a_cold_start) {
    Checkpoints store(kPlenty);
    Kept first_run(target_, GetParam());
    keep_three(first_run, store);
    Tokens other(tokens_.begin(), tokens_.begin() + 31);
    other.insert(other.end(), {9, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1});
    Kept cold(target_, GetParam());
    cold.read(other);
    // In a new sequence; in one that holds more of the same text; in one that holds another.
    Kept fresh(target_, GetParam());
    Kept strange(target_, GetParam());
    strange.read(Tokens(50, 3));
    for (Kept* run : {&fresh, &first_run, &strange}) {
        ASSERT_TRUE(run->resume(store, other));
        EXPECT_EQ(run->length(), 31);
        run->read(std::span(other).subspan(31));
        EXPECT_EQ(run->state(), cold.state());
        // And forth again, past where it went another way.
        ASSERT_TRUE(run->resume(store, tokens_));
        EXPECT_EQ(run->length(), 75);
        run->read(std::span(tokens_).subspan(75));
        Kept all(target_, GetParam());
        all.read(tokens_);
        EXPECT_EQ(run->state(), all.state());
    }
}

TEST_P(CheckpointStore, checkpoints_of_one_text_share_its_rows) {
    Checkpoints one(kPlenty);
    Checkpoints three(kPlenty);
    Kept a(target_, GetParam());
    Kept b(target_, GetParam());
    a.read(first(75));
    a.keep(one);
    keep_three(b, three);
    const model::SequenceOptions& options = a.sequence.options();
    const std::uint64_t moment = model::Sequence::moment_bytes(target_->config(), options);
    EXPECT_LE(three.bytes(), one.bytes() + 2 * moment + (10 + 31) * sizeof(std::int32_t));
    EXPECT_GE(one.bytes(), model::Sequence::rows_bytes(target_->config(), options, 75));
}

TEST_P(CheckpointStore, the_longest_unused_goes_first_and_the_budget_holds) {
    Checkpoints measure(kPlenty);
    Kept run(target_, GetParam());
    keep_three(run, measure);
    // A moment is reckoned at its largest.
    Checkpoints store(measure.bytes() + 512);
    Kept again(target_, GetParam());
    keep_three(again, store);
    EXPECT_EQ(store.size(), 3u);
    EXPECT_NE(store.find(first(20), GetParam(), 0), nullptr);  // that of 10 tokens is used
    Kept other(target_, GetParam());
    other.read(Tokens(12, 5));
    other.keep(store);
    EXPECT_LE(store.bytes(), store.bytes_max());
    EXPECT_NE(store.find(first(20), GetParam(), 0), nullptr);
    EXPECT_EQ(store.find(first(50), GetParam(), 10), nullptr) << "that of 31 was the oldest";
    EXPECT_NE(store.find(Tokens(13, 5), GetParam(), 0), nullptr);
    // Rows that went with their checkpoints are saved again.
    Checkpoints little(measure.bytes() - 1);
    Kept third(target_, GetParam());
    keep_three(third, little);
    Kept fresh(target_, GetParam());
    ASSERT_TRUE(fresh.resume(little, tokens_));
    EXPECT_EQ(fresh.length(), 75);
    EXPECT_EQ(fresh.state(), third.state());
    Checkpoints none(1000);
    Kept last(target_, GetParam());
    keep_three(last, none);
    EXPECT_EQ(none.size(), 0u);
}

TEST_P(CheckpointStore, a_whole_prompt_is_found_only_with_its_logits) {
    Checkpoints store(kPlenty);
    Kept run(target_, GetParam());
    run.read(first(10));
    run.keep(store);
    EXPECT_EQ(store.find(first(10), GetParam(), 0), nullptr);
    const std::vector<float> logits = {1, 2, 3};
    store.keep(*target_, run.sequence, run.placed, {logits, ""});
    EXPECT_EQ(store.size(), 1u);
    const auto* found = store.find(first(10), GetParam(), 0);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->logits, logits);
    EXPECT_EQ(store.find(first(10), !GetParam(), 0), nullptr) << "other cells";
}

}  // namespace
}  // namespace strata::test
