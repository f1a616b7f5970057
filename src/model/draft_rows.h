// A head that a drafter has of its own: rows for every token, or for some alone with a list that
// says which. Fewer rows make a guess cheaper and can never propose the other tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "gguf/reader.h"

namespace strata::model {

// `head` and `map` each null where the file has none. Errors: a list without a head; a head that is
// not [hidden, vocabulary], or [hidden, tokens of the list], of fractions; a list not of I64.
Status check_draft_rows(const gguf::File& file, const gguf::Tensor* head, const gguf::Tensor* map,
                        std::int64_t hidden, std::int64_t vocabulary);

// The token of each row, of a list that check_draft_rows took. Error: tokens that do not ascend or
// are outside the vocabulary, fewer than `least`.
Result<std::vector<std::int64_t>> read_draft_rows(const gguf::File& file, const gguf::Tensor& map,
                                                  std::int64_t vocabulary, std::int64_t least);

}  // namespace strata::model
