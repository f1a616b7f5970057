// The suffix drafter's match, against a search of the whole text.

#include "spec/suffix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "tests/support/random.h"

namespace strata::test {
namespace {

using spec::Evidence;
using Tokens = std::vector<std::int32_t>;

Tokens guess(spec::SuffixDrafter& drafter, const Tokens& text, std::int64_t count) {
    return drafter.guess({text, count, nullptr, {}}).value().tokens;
}

// Tokens that the text's end has in common with what ends before `end`.
std::int64_t common(const Tokens& text, std::size_t end) {
    std::size_t length = 0;
    while (length < end && text[end - 1 - length] == text[text.size() - 1 - length]) ++length;
    return static_cast<std::int64_t>(length);
}

// The longest end of the text that also ends before its last token, and what followed there.
struct Repeat {
    std::int64_t length = 0;
    Tokens followers;
};
Repeat longest_repeat(const Tokens& text) {
    Repeat best;
    for (std::size_t end = 1; end < text.size(); ++end) {
        best.length = std::max(best.length, common(text, end));
    }
    for (std::size_t end = 1; end < text.size(); ++end) {
        if (common(text, end) == best.length) best.followers.push_back(text[end]);
    }
    return best;
}

bool differs(Evidence evidence) {
    return evidence == Evidence::differ || evidence == Evidence::mostly ||
           evidence == Evidence::nearly;
}

struct Most {
    std::int32_t token = 0;
    Evidence evidence = Evidence::mostly;
};

// The one that has two of three of the followers, each of which counts four times at most.
std::optional<Most> most_of(const Tokens& followers) {
    std::map<std::int32_t, int> times;
    for (const std::int32_t token : followers) times[token] = std::min(times[token] + 1, 4);
    int all = 0;
    for (const auto& [token, count] : times) all += count;
    for (const auto& [token, count] : times) {
        if (5 * count >= 4 * all) return Most{token, Evidence::nearly};
        if (3 * count >= 2 * all) return Most{token, Evidence::mostly};
    }
    return {};
}

TEST(Suffix, the_match_is_the_longest_repeat_of_the_end_and_is_counted) {
    Random random("matches");
    for (const std::int64_t alphabet : {1, 2, 3, 10}) {
        spec::SuffixDrafter drafter;
        Tokens text;
        for (int i = 0; i < 300; ++i) {
            text.push_back(static_cast<std::int32_t>(random.integer(0, alphabet - 1)));
            drafter.read(text);
            const auto match = drafter.match();
            const Repeat repeat = longest_repeat(text);
            ASSERT_EQ(match.length, repeat.length) << alphabet << ' ' << i;
            if (match.length == 0) continue;
            // The place it names does hold the same tokens, before the end.
            ASSERT_LT(match.end, static_cast<std::int64_t>(text.size()));
            ASSERT_GE(common(text, static_cast<std::size_t>(match.end)), match.length);
            const auto times = static_cast<int>(repeat.followers.size());
            ASSERT_EQ(match.times, std::min(times, spec::SuffixDrafter::kTimesMax))
                << alphabet << ' ' << i;
            const Tokens& after = repeat.followers;
            const auto first = drafter.continuation(text, 1);
            const std::int32_t guess = first.tokens[0];
            const bool agree = std::count(after.begin(), after.end(), guess) == times;
            ASSERT_EQ(differs(first.evidence[0]), !agree);
            const std::int32_t last = text[static_cast<std::size_t>(match.end)];
            const Most most = most_of(after).value_or(Most{last, Evidence::differ});
            ASSERT_EQ(guess, most.token);
            if (agree) continue;
            ASSERT_EQ(first.evidence[0], most.evidence);
        }
    }
}

TEST(Suffix, a_guess_rests_on_what_came_before_it_guesses_included) {
    spec::SuffixDrafter drafter;
    // "2 3" occurred once, "2 3 4" and "2 3 4 5" too; "5" twice, "9 2 3" never.
    const Tokens text = {1, 2, 3, 4, 5, 6, 5, 9, 2, 3};
    drafter.read(text);
    const auto found = drafter.continuation(text, 4);
    EXPECT_EQ(found.tokens, (Tokens{4, 5, 6, 5}));
    EXPECT_EQ(found.evidence, (std::vector{Evidence::once_2, Evidence::once_3, Evidence::once_4,
                                           Evidence::once_4}));
    spec::SuffixDrafter often;
    const Tokens again = {5, 1, 2, 3, 4, 6, 1, 2, 3, 4, 7, 9, 1};
    often.read(again);
    const auto guessed = often.continuation(again, 4);
    EXPECT_EQ(guessed.tokens, (Tokens{2, 3, 4, 7}));
    EXPECT_EQ(guessed.evidence,
              (std::vector{Evidence::twice_1, Evidence::twice, Evidence::twice, Evidence::differ}));
}

TEST(Suffix, guesses_what_followed_as_far_as_it_is_likely) {
    spec::SuffixDrafter drafter;
    // Once and short: the first guess alone.
    EXPECT_EQ(guess(drafter, {1, 2, 3, 4, 5, 9, 2, 3}, 8), (Tokens{4}));
    drafter.reset();
    EXPECT_EQ(guess(drafter, {1, 2, 3, 4}, 8), Tokens{});
    drafter.reset();
    // What always came alike comes again.
    EXPECT_EQ(guess(drafter, {2, 3, 4, 5, 6, 9, 2, 3, 4, 5, 6, 8, 2, 3}, 8), (Tokens{4, 5, 6}));
    drafter.reset();
    // What came in different ways is not guessed.
    EXPECT_EQ(guess(drafter, {2, 3, 4, 2, 3, 5, 2, 3}, 8), Tokens{});
    drafter.reset();
    // Nor is what most often came, unless it came two times of three.
    EXPECT_EQ(guess(drafter, {2, 3, 4, 7, 2, 3, 4, 8, 2, 3, 5, 9, 2, 3}, 1), (Tokens{4}));
    drafter.reset();
    EXPECT_EQ(guess(drafter, {2, 3, 4, 7, 2, 3, 4, 8, 2, 3, 5, 9, 2, 3, 6, 1, 2, 3}, 1), Tokens{});
    drafter.reset();
    // A repeating text goes on repeating, past its own end.
    EXPECT_EQ(guess(drafter, {5, 6, 5, 6, 5, 6, 5, 6}, 5), (Tokens{5, 6, 5, 6, 5}));
}

TEST(Suffix, goes_on_after_tokens_that_are_not_yet_the_text_s) {
    const auto after = [](const Tokens& text, const Tokens& chain) {
        spec::SuffixDrafter drafter;
        drafter.read(text);
        return drafter.continuation_after(text, chain, 4).tokens;
    };
    const Tokens text = {1, 2, 3, 4, 5, 6, 1, 2};
    EXPECT_EQ(after(text, {}), (Tokens{3, 4, 5, 6}));
    EXPECT_EQ(after(text, {3}), (Tokens{4, 5, 6, 1}));
    EXPECT_EQ(after(text, {3, 4}), (Tokens{5, 6, 1, 2}));
    // Where the match does not go on so, a shorter end may.
    EXPECT_EQ(after(text, {5}), (Tokens{6, 1, 2}));
    EXPECT_EQ(after(text, {9}), Tokens{});
    EXPECT_EQ(after(text, {9, 4}), (Tokens{5, 6, 1, 2}));
    EXPECT_EQ(after({7, 8}, {8}), Tokens{});

    // Of any text and chain: what is guessed follows the chain's end somewhere before it.
    Random random("chains");
    for (int i = 0; i < 2000; ++i) {
        const auto draw = [&](std::int64_t most) {
            Tokens tokens(static_cast<std::size_t>(random.integer(1, most)));
            for (auto& t : tokens) t = static_cast<std::int32_t>(random.integer(0, 2));
            return tokens;
        };
        const Tokens start = draw(12);
        Tokens all = start;
        const Tokens chain = draw(4);
        all.insert(all.end(), chain.begin(), chain.end());
        for (const std::int32_t token : after(start, chain)) {
            const Tokens pair = {all.back(), token};
            ASSERT_NE(std::search(all.begin(), all.end(), pair.begin(), pair.end()), all.end());
            all.push_back(token);
        }
    }
}

// SPEC-11: of texts that repeat themselves in any way and of one that never does, with a chain of
// guesses that the text does not know as another drafter may make them.
TEST(Suffix, time_a_token_stays_bounded) {
    Random random("long");
    for (const std::int64_t period : {1, 37, 0}) {
        spec::SuffixDrafter drafter;
        Tokens text;
        const auto start = std::chrono::steady_clock::now();
        constexpr int kTokens = 100'000;
        for (int i = 0; i < kTokens; ++i) {
            text.push_back(
                static_cast<std::int32_t>(period > 0 ? i % period : random.integer(0, 50'000)));
            ASSERT_TRUE(drafter.guess({text, 15, nullptr, {}}).ok());
            drafter.continuation_after(text, Tokens{99'999, 0}, 1);
        }
        const auto seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        // Far above what it takes, far below what a search of the text for every token would.
        EXPECT_LT(seconds, 20) << period;
    }
}

}  // namespace
}  // namespace strata::test
