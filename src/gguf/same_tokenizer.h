// Whether two model files read a text alike.
#pragma once

#include "base/result.h"
#include "gguf/reader.h"

namespace strata::gguf {

// Error: a key of the tokenizer that the files give different values, which is named.
Status check_same_tokenizer(const File& file, const File& other);

}  // namespace strata::gguf
