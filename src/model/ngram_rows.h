// Which rows of the n-gram table a token reads: they depend on token ids alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"

namespace strata::model {

// Rows for each of `tokens`, which follow `before` (the tokens of the same sequence, oldest first;
// at least size-1 of them unless the sequence is shorter). [tokens, heads] row-major in `rows`.
//
// Walking back from a token, the first predecessor that is missing or the end token blanks itself
// and all further ones to the end token; the token itself is never replaced. Then
//   hash_n = xor over i < n of window[i] * multipliers[i]      n = 2 .. size
//   row of head h of n-gram n = hash_n mod vocabulary[.] + offsets[.]
// Source: model.md 2.8.
void ngram_rows(const NgramConfig& config, std::span<const std::int32_t> before,
                std::span<const std::int32_t> tokens, std::vector<std::int64_t>& rows);

}  // namespace strata::model
