// What an answer that is held to a grammar may go on with.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "grammar/json.h"
#include "grammar/token_sets.h"
#include "tokenizer/tokenizer.h"

namespace strata {

// Tokens that are text: no added ones, no end tokens, none without bytes. Outlived by the
// tokenizer.
grammar::TokenSets text_tokens(const Tokenizer& tokenizer, std::span<const std::int32_t> ends);

// The token that ends the thinking which a prompt leaves open; nothing where it leaves none, or the
// vocabulary has no tokens <think> and </think>.
std::optional<std::int32_t> open_thinking(const Tokenizer& tokenizer,
                                          std::span<const std::int32_t> prompt,
                                          std::span<const std::int32_t> ends);

// Of one answer. It is told of every token that is taken, in order, and what it says is of the next
// one: in a window of guesses each row's token is held to what was taken before it.
class AnswerRule {
  public:
    // The answer is a JSON object, which begins after the first `thinking_end` where there is one,
    // and after it comes one of `ends`. What is pointed to outlives this.
    AnswerRule(grammar::TokenSets& texts, std::span<const std::int32_t> ends,
               std::optional<std::int32_t> thinking_end);

    // Whether the next token is held to the grammar. Before that, while the model thinks, all are
    // allowed but end tokens, and the one that ends the thinking is none.
    bool holds() const { return !thinking_end_; }
    bool allows(std::int32_t token) const;
    // All that are allowed where the rule holds; valid until the next call. Error: there are none.
    Result<const grammar::TokenSet*> allowed();

    // Whether the answer is one whole object by now.
    bool complete() const { return holds() && state_.complete(); }

    // Takes a token that is allowed. False: the answer ends with it, there being no end token.
    bool take(std::int32_t token);

  private:
    grammar::TokenSets* texts_;
    grammar::TokenSet ends_;
    std::optional<std::int32_t> thinking_end_;
    grammar::Json state_;
};

}  // namespace strata
