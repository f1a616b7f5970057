// What tells one file's weights from another's of the same shapes.
#pragma once

#include <string>

#include "gguf/reader.h"

namespace strata::gguf {

// Eight bytes, of the start of every tensor and of all keys but the tokenizer's and the general
// ones: equal weights in equal use have equal marks, whatever their files are called.
std::string content_mark(const File& file);

}  // namespace strata::gguf
