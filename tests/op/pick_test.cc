// op/pick.h on every backend in the build, against its float64 oracle.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/op/oracle/pick.h"
#include "tests/support/everywhere.h"
#include "tests/support/rig.h"

namespace strata::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct PickOutput {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> again;  // those beside the confidences
    std::vector<float> confidence;
    std::vector<std::int32_t> best_tokens;
    std::vector<float> best_logits;
};

void expect_same_output(const std::string& what, const PickOutput& got, const PickOutput& want) {
    expect_equal(what + ", tokens", got.tokens, want.tokens);
    expect_same_bits(what + ", confidence", got.confidence, want.confidence);
    expect_equal(what + ", best", got.best_tokens, want.best_tokens);
    expect_same_bits(what + ", best", got.best_logits, want.best_logits);
}

std::int64_t candidates_of(std::int64_t width) {
    return std::vector<std::int64_t>{0, 1, 20,
                                     op::kCandidatesMax}[static_cast<std::size_t>(width % 4)];
}

PickOutput run_pick(TestBackend& backend, const std::vector<float>& logits, std::int64_t width,
                    const std::vector<std::int64_t>& token_of_row) {
    Rig rig(backend, "pick");
    op::Pick args;
    args.logits = rig.input("logits", logits, width);
    const std::int64_t rows = args.logits.rows;
    if (!token_of_row.empty()) args.token_of_row = {rig.input("token_of_row", token_of_row), width};
    args.picked = {rig.output<op::Picked>("picked", 1, rows).data, rows};
    args.tokens = {rig.output<std::int32_t>("tokens", 1, rows).data, rows};
    // A list of some length, every one of which is met.
    const std::int64_t candidates = candidates_of(width);
    // Poison is token -1, which stands where there are fewer.
    const std::vector<op::Candidate> none(static_cast<std::size_t>(rows * candidates), {7, 7});
    if (candidates > 0) args.best = rig.state("best", none, candidates);
    rig.ops().pick(args, rig.queue());
    rig.finish();
    PickOutput out{rig.read(args.tokens.data), {}, {}, {}, {}};
    if (candidates > 0) {
        for (const op::Candidate& best : rig.read(args.best.data)) {
            out.best_tokens.push_back(best.token);
            out.best_logits.push_back(best.logit);
        }
    }
    for (const op::Picked& picked : rig.read(args.picked.data)) {
        out.again.push_back(picked.token);
        out.confidence.push_back(picked.confidence);
    }
    return out;
}

void check_pick(const std::vector<float>& logits, std::int64_t width,
                const std::vector<std::int64_t>& token_of_row = {}) {
    const PickResult want = pick_oracle(rows_of(logits, width), token_of_row, candidates_of(width));
    const std::string label = "N=" + std::to_string(width) + " of " + std::to_string(logits.size());
    on_backends(
        label, [&](TestBackend& b) { return run_pick(b, logits, width, token_of_row); },
        [&](const PickOutput& got) {
            expect_equal(label, got.tokens, want.tokens);
            expect_equal(label, got.again, want.tokens);
            expect_close(label, got.confidence, want.confidence, Tolerance::projection());
            expect_equal(label, got.best_tokens, want.best_tokens);
            expect_same_bits(label, got.best_logits, want.best_logits);
        });
}

// On both sides of what a block of threads takes.
constexpr std::int64_t kWidths[] = {1, 2, 33, 257, 4095, 4096, 4097, 8991};

TEST(Pick, is_the_largest_logit_and_its_part_of_the_softmax) {
    Random random("pick");
    for (const std::int64_t width : kWidths) {
        for (const std::int64_t rows : {1, 3, 16})
            check_pick(random.floats(rows * width, -9, 9), width);
    }
}

TEST(Pick, of_equal_logits_is_the_lowest_wherever_they_stand) {
    for (const std::int64_t width : {33, 4097, 8991}) {
        check_pick(std::vector<float>(static_cast<std::size_t>(width), 2.5f), width);
        Random random("pick ties");
        for (int i = 0; i < 6; ++i) {
            auto logits = random.floats(width, -1, 1);
            for (int n = 0; n < 3; ++n) {
                logits[static_cast<std::size_t>(random.integer(0, width - 1))] = 4.0f;
            }
            check_pick(logits, width);
        }
    }
}

// In order, and so that the threads of a block that have them are few.
TEST(Pick, lists_the_best_wherever_they_stand) {
    constexpr std::int64_t kThreads = 256;
    for (const std::int64_t width : {4095, 5002, 8991}) {
        Random random("pick places", static_cast<std::uint64_t>(width));
        std::vector<float> rising;
        for (std::int64_t r = 0; r < width; ++r) rising.push_back(static_cast<float>(r) - 4000);
        check_pick(rising, width);
        check_pick({rising.rbegin(), rising.rend()}, width);
        auto strided = random.floats(width, -1, 1);
        for (std::int64_t r = 7; r < width; r += kThreads) strided[r] = static_cast<float>(2 + r);
        check_pick(strided, width);
        auto zeros = random.floats(width, -2, -1);
        for (std::int64_t r = 3; r < width; r += 35) zeros[r] = r % 2 == 0 ? 0.0f : -0.0f;
        check_pick(zeros, width);
    }
}

TEST(Pick, with_a_list_is_the_token_of_the_row) {
    Random random("pick list");
    std::vector<std::int64_t> tokens;
    for (std::int64_t r = 0; r < 5002; ++r) tokens.push_back(7 * r + 3);
    check_pick(random.floats(2 * 5002, -4, 4), 5002, tokens);
}

TEST(Pick, takes_the_largest_scores_and_the_smallest_without_overflow) {
    Random random("pick large");
    auto logits = random.floats(5002, -2, 2);
    logits[4711] = 3e38f;
    logits[4712] = -3e38f;
    logits[5] = -kInfinity;
    check_pick(logits, 5002);
    std::vector<float> low(5002, -kInfinity);
    low[4999] = -3e38f;
    check_pick(low, 5002);
}

TEST(Pick, shows_by_a_confidence_that_is_no_number_where_logits_are_none) {
    Random random("pick broken");
    const auto sound = random.floats(5002, -2, 2);
    auto nan = sound;
    nan[4100] = std::nanf("");
    auto infinite = sound;
    infinite[17] = kInfinity;
    const std::vector<float> nothing(5002, -kInfinity);
    const std::vector<float> all(5002, std::nanf(""));
    for (TestBackend& backend : backends()) {
        for (const auto& broken : {nan, infinite, nothing, all}) {
            const PickOutput out = run_pick(backend, broken, 5002, {});
            EXPECT_TRUE(std::isnan(out.confidence[0])) << backend.name;
            EXPECT_GE(out.tokens[0], 0) << backend.name;
            EXPECT_LT(out.tokens[0], 5002) << backend.name;
        }
        EXPECT_FALSE(std::isnan(run_pick(backend, sound, 5002, {}).confidence[0]));
    }
}

TEST(Pick, each_row_is_bit_identical_to_that_row_alone) {
    Random random("pick alone");
    const auto logits = random.floats(16 * 5002, -6, 6);
    for (TestBackend& backend : backends()) {
        const PickOutput together = run_pick(backend, logits, 5002, {});
        PickOutput alone;
        for (std::int64_t t = 0; t < 16; ++t) {
            const PickOutput one = run_pick(backend, slice(logits, t, 1, 5002), 5002, {});
            append(alone.tokens, one.tokens);
            append(alone.confidence, one.confidence);
            append(alone.best_tokens, one.best_tokens);
            append(alone.best_logits, one.best_logits);
        }
        expect_same_output(backend.name, together, alone);
    }
}

}  // namespace
}  // namespace strata::test
