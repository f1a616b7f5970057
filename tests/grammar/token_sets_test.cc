// Which tokens may follow: all together as each alone.

#include "grammar/token_sets.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/random.h"

namespace strata::test {
namespace {

using grammar::Json;
using grammar::TokenSets;

// Bytes alone, none, and up to six in a row, many of them with a beginning in common.
std::vector<std::string> vocabulary() {
    constexpr std::string_view kBytes = "{}[]\",: \n0123-.eE\\u8dcabtrfnulse\x80\xc2\xe2\x82\xac";
    Random random("vocabulary");
    std::vector<std::string> tokens = {""};
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (int i = 0; i < 1500; ++i) {
        std::string token = i % 3 == 0 ? "" : tokens[random.bits() % tokens.size()];
        const std::int64_t more = random.integer(i % 50 == 0 ? 0 : 1, 3);
        for (std::int64_t k = 0; k < more; ++k) token += kBytes[random.bits() % kBytes.size()];
        tokens.push_back(token);
    }
    return tokens;
}

TEST(TokenSets, all_tokens_that_may_follow_are_those_that_each_may) {
    const std::vector<std::string> tokens = vocabulary();
    TokenSets sets({tokens.begin(), tokens.end()});
    Random random("texts");
    for (int text = 0; text < 40; ++text) {
        Json state;
        // More states than are kept, and the same ones again.
        for (int step = 0; step < 30 && !state.complete(); ++step) {
            const grammar::TokenSet& following = sets.following(state);
            std::vector<std::int32_t> allowed;
            for (std::int32_t token = -1; token <= std::ssize(tokens); ++token) {
                Json after = state;
                const bool own = token >= 0 && token < std::ssize(tokens);
                const std::string bytes = own ? tokens[static_cast<std::size_t>(token)] : "";
                const bool want = !bytes.empty() && after.push(bytes);
                ASSERT_EQ(following.has(token), want) << token << ' ' << bytes;
                ASSERT_EQ(sets.may_follow(state, token), want) << token << ' ' << bytes;
                if (want) allowed.push_back(token);
            }
            ASSERT_FALSE(allowed.empty());
            ASSERT_FALSE(following.empty());
            const std::int32_t next = allowed[random.bits() % allowed.size()];
            ASSERT_TRUE(state.push(sets.bytes(next)));
        }
        if (!state.complete()) continue;
        EXPECT_TRUE(sets.following(state).empty());
    }
}

TEST(TokenSets, a_vocabulary_that_cannot_spell_json_has_no_token_to_follow) {
    TokenSets sets({"a", "b", "", "[", "\"{"});
    EXPECT_TRUE(sets.following(Json()).empty());
    EXPECT_TRUE(TokenSets({}).following(Json()).empty());
}

}  // namespace
}  // namespace strata::test
