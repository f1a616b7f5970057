// Finds added tokens in text: the leftmost, and of those that start there the longest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "tokenizer/vocabulary.h"

namespace strata {

// A trie over bytes.
class AddedTokens {
  public:
    void add(std::string_view spelling, TokenId id);

    struct Match {
        std::size_t position;
        std::size_t length;
        TokenId id;
    };
    // The first match at or after `from`. Time is O(bytes looked at times the longest spelling).
    std::optional<Match> find(std::string_view text, std::size_t from) const;
    // The token with exactly this spelling.
    std::optional<TokenId> exact(std::string_view spelling) const;

  private:
    static std::uint64_t edge(std::uint32_t node, char byte) {
        return static_cast<std::uint64_t>(node) << 8 | static_cast<std::uint8_t>(byte);
    }
    std::optional<Match> match_at(std::string_view text, std::size_t position) const;

    bool starts_[256] = {};
    std::uint32_t nodes_ = 1;
    std::unordered_map<std::uint64_t, std::uint32_t> edges_;
    std::unordered_map<std::uint32_t, TokenId> ends_;
};

}  // namespace strata
