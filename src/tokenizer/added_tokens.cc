#include "tokenizer/added_tokens.h"

namespace strata {

void AddedTokens::add(std::string_view spelling, TokenId id) {
    if (spelling.empty()) return;
    starts_[static_cast<std::uint8_t>(spelling[0])] = true;
    std::uint32_t node = 0;
    for (const char byte : spelling) {
        const auto [at, inserted] = edges_.emplace(edge(node, byte), nodes_);
        if (inserted) ++nodes_;
        node = at->second;
    }
    ends_.emplace(node, id);
}

std::optional<AddedTokens::Match> AddedTokens::match_at(std::string_view text,
                                                        std::size_t position) const {
    std::optional<Match> longest;
    std::uint32_t node = 0;
    for (std::size_t i = position; i < text.size(); ++i) {
        const auto next = edges_.find(edge(node, text[i]));
        if (next == edges_.end()) break;
        node = next->second;
        const auto end = ends_.find(node);
        if (end != ends_.end()) longest = Match{position, i + 1 - position, end->second};
    }
    return longest;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, std::size_t from) const {
    for (std::size_t position = from; position < text.size(); ++position) {
        if (!starts_[static_cast<std::uint8_t>(text[position])]) continue;
        if (const auto match = match_at(text, position)) return match;
    }
    return std::nullopt;
}

std::optional<TokenId> AddedTokens::exact(std::string_view spelling) const {
    const auto match = match_at(spelling, 0);
    if (!match || match->length != spelling.size()) return std::nullopt;
    return match->id;
}

}  // namespace strata
