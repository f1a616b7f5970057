// Where the reference's Unicode tables are of another age than those of the library.
#pragma once

#include "tokenizer/unicode.h"

namespace strata {

// The class of a character that Unicode 15.1 or 16.0 assigned, which an older library calls
// unassigned; `other` for one that those versions do not know either.
CharClass late_class(char32_t code);

// Marks of a combining class that were assigned after Unicode 9.0, and the two letters that compose
// since 13.0: the reference's normalizer takes each for a starter that composes with nothing.
bool is_late_mark(char32_t code);

}  // namespace strata
