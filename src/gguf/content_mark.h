// What tells one file's weights from another's of the same shapes.
#pragma once

#include <string>

#include "gguf/reader.h"

namespace strata::gguf {

// Eight bytes, of the start of every tensor and of all keys but those of the tokenizer, of a split
// set and the general ones: equal weights in equal use have equal marks, whatever their files are
// called and however many they are.
std::string content_mark(const File& file);

}  // namespace strata::gguf
