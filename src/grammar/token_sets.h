// Which tokens of a vocabulary may follow a text, by the bytes that each stands for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/json.h"

namespace strata::grammar {

// Tokens of [0, size).
class TokenSet {
  public:
    explicit TokenSet(std::size_t size) : words_((size + 63) / 64) {}

    void add(std::int32_t token) {
        words_[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (token % 64);
    }
    // False outside of [0, size).
    bool has(std::int32_t token) const {
        const std::size_t word = static_cast<std::size_t>(token) / 64;
        return word < words_.size() && (words_[word] >> (token % 64) & 1) != 0;
    }
    bool empty() const;

  private:
    std::vector<std::uint64_t> words_;
};

class TokenSets {
  public:
    // Sets that are kept: a text comes back to few states, most of them inside strings.
    static constexpr std::size_t kKeptMax = 128;

    // `bytes` of each token, by its id; empty of one that is no text. What they point to outlives
    // this.
    explicit TokenSets(std::vector<std::string_view> bytes);

    std::size_t size() const { return bytes_.size(); }
    std::string_view bytes(std::int32_t token) const;

    bool may_follow(const Json& state, std::int32_t token) const;
    // All that may; valid until the next call.
    const TokenSet& following(const Json& state);

  private:
    struct Hash {
        std::size_t operator()(const Json& state) const { return state.hash(); }
    };
    TokenSet find_following(const Json& state) const;

    std::vector<std::string_view> bytes_;
    // Tokens that are text, ordered by their bytes, and how many of them each begins with as the
    // one before does: what they have in common is tried once.
    std::vector<std::int32_t> ordered_;
    std::vector<std::size_t> common_;
    std::unordered_map<Json, TokenSet, Hash> kept_;
};

}  // namespace strata::grammar
