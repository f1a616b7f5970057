// The suffix drafter's match, against a search of the whole text.

#include "spec/suffix.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/random.h"

namespace strata::test {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens guess(spec::SuffixDrafter& drafter, const Tokens& text, std::int64_t count) {
    return drafter.guess({text, count, nullptr, {}}).value().tokens;
}

// Length of the longest end of the text that also ends before its last token.
std::int64_t longest_repeat(const Tokens& text) {
    std::int64_t best = 0;
    for (std::size_t end = 1; end < text.size(); ++end) {
        std::size_t length = 0;
        while (length < end && text[end - 1 - length] == text[text.size() - 1 - length]) ++length;
        best = std::max(best, static_cast<std::int64_t>(length));
    }
    return best;
}

TEST(Suffix, the_match_is_the_longest_repeat_of_the_end) {
    Random random("matches");
    for (const std::int64_t alphabet : {1, 2, 3, 10}) {
        spec::SuffixDrafter drafter(1);
        Tokens text;
        for (int i = 0; i < 300; ++i) {
            text.push_back(static_cast<std::int32_t>(random.integer(0, alphabet - 1)));
            const Tokens guesses = guess(drafter, text, 4);
            const auto match = drafter.match();
            ASSERT_EQ(match.length, longest_repeat(text)) << alphabet << ' ' << i;
            // The place it names does hold the same tokens, before the end.
            ASSERT_LT(match.end, static_cast<std::int64_t>(text.size()));
            for (std::int64_t k = 1; k <= match.length; ++k) {
                ASSERT_EQ(text[static_cast<std::size_t>(match.end - k)],
                          text[text.size() - static_cast<std::size_t>(k)]);
            }
            ASSERT_EQ(static_cast<std::int64_t>(guesses.size()),
                      std::min<std::int64_t>(4, match.length));
        }
    }
}

TEST(Suffix, guesses_what_followed) {
    spec::SuffixDrafter drafter;
    EXPECT_EQ(guess(drafter, {1, 2, 3, 4, 5, 9, 2, 3}, 8), (Tokens{4, 5}));
    drafter.reset();
    EXPECT_EQ(guess(drafter, {1, 2, 3, 4}, 8), Tokens{});
    drafter.reset();
    // A repeating text goes on repeating, past its own end.
    EXPECT_EQ(guess(drafter, {5, 6, 5, 6, 5, 6}, 4), (Tokens{5, 6, 5, 6}));
}

TEST(Suffix, time_a_token_stays_bounded) {
    Random random("long");
    for (const bool repeating : {true, false}) {
        spec::SuffixDrafter drafter;
        Tokens text;
        const auto start = std::chrono::steady_clock::now();
        constexpr int kTokens = 100'000;
        for (int i = 0; i < kTokens; ++i) {
            text.push_back(
                static_cast<std::int32_t>(repeating ? i % 37 : random.integer(0, 50'000)));
            ASSERT_TRUE(drafter.guess({text, 15, nullptr, {}}).ok());
        }
        const auto seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        // Far above what it takes, far below what a search of the text for every token would.
        EXPECT_LT(seconds, 20) << repeating;
    }
}

}  // namespace
}  // namespace strata::test
