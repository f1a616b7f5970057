// Whether two files of models read a text alike.
#pragma once

#include <string>

#include "base/result.h"

namespace strata::eval {

// Errors: a file that cannot be read, a key of the tokenizer that the files give different values,
// which is named.
Status check_same_tokenizer(const std::string& path, const std::string& other);

}  // namespace strata::eval
