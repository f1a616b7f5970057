// What a model file says about text: its tokenizer, its end tokens and its sampling defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "gguf/reader.h"
#include "strata/engine.h"
#include "tokenizer/tokenizer.h"

namespace strata {

// Nothing for a file that states that it has no vocabulary. Errors: a tokenizer that this version
// does not know, one that is malformed, or one with more tokens than the model has rows.
Result<std::optional<Tokenizer>> tokenizer_of(const gguf::File& file, std::int64_t vocabulary);

// Error: both files say which tokens their ids stand for, and not the same.
Status check_tokenizer(const gguf::File& draft, const gguf::File& target);

// Every token that ends an answer, ascending. Error: one outside the vocabulary.
Result<std::vector<std::int32_t>> end_tokens_of(const gguf::File& file, std::int64_t vocabulary);

// general.sampling.*; greedy where the file gives no temperature. Error: as check(Sampling).
Result<Sampling> sampling_of(const gguf::File& file);

// The ChatML form of messages, ready for the assistant's answer.
Result<std::vector<std::int32_t>> chat_prompt(const Tokenizer& tokenizer,
                                              std::span<const Message> messages, bool thinking);
// What follows an answer when the user goes on with `text`.
Result<std::vector<std::int32_t>> chat_turn(const Tokenizer& tokenizer, std::string_view text,
                                            bool thinking, bool answer_ended);

}  // namespace strata
