#include "engine/answer_rule.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"

namespace strata {
namespace {

bool is_among(std::span<const std::int32_t> tokens, std::int32_t token) {
    return std::ranges::find(tokens, token) != tokens.end();
}

}  // namespace

grammar::TokenSets text_tokens(const Tokenizer& tokenizer, std::span<const std::int32_t> ends) {
    std::vector<std::string_view> bytes(static_cast<std::size_t>(tokenizer.size()));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const auto token = static_cast<std::int32_t>(i);
        if (!tokenizer.is_added(token) && !is_among(ends, token)) {
            bytes[i] = tokenizer.token_bytes(token);
        }
    }
    return grammar::TokenSets(std::move(bytes));
}

std::optional<std::int32_t> open_thinking(const Tokenizer& tokenizer,
                                          std::span<const std::int32_t> prompt,
                                          std::span<const std::int32_t> ends) {
    const auto open = tokenizer.find("<think>");
    const auto close = tokenizer.find("</think>");
    if (!open || !close) return std::nullopt;
    for (std::size_t i = prompt.size(); i-- > 0;) {
        if (prompt[i] == *open) return close;
        // What an answer before this one left open is not open any more.
        if (prompt[i] == *close || is_among(ends, prompt[i])) break;
    }
    return std::nullopt;
}

AnswerRule::AnswerRule(grammar::TokenSets& texts, std::span<const std::int32_t> ends,
                       std::optional<std::int32_t> thinking_end)
    : texts_(&texts),
      ends_(ends.empty() ? 0 : static_cast<std::size_t>(std::ranges::max(ends)) + 1),
      thinking_end_(thinking_end) {
    for (const std::int32_t token : ends) ends_.add(token);
}

bool AnswerRule::allows(std::int32_t token) const {
    if (thinking_end_) return token == *thinking_end_ || !ends_.has(token);
    return state_.complete() ? ends_.has(token) : texts_->may_follow(state_, token);
}

Result<const grammar::TokenSet*> AnswerRule::allowed() {
    if (state_.complete()) return &ends_;
    const grammar::TokenSet& set = texts_->following(state_);
    if (!set.empty()) return &set;
    return STRATA_ERROR("none of the vocabulary's ", texts_->size(),
                        " tokens goes on with the answer as JSON");
}

bool AnswerRule::take(std::int32_t token) {
    if (thinking_end_) {
        if (token == *thinking_end_) thinking_end_.reset();
        return true;
    }
    STRATA_CHECK(state_.push(texts_->bytes(token)));
    return !state_.complete() || !ends_.empty();
}

}  // namespace strata
