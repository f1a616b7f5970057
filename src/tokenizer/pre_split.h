// Cuts text into the pieces that merges never cross, as the split expression in vocabulary.h does.
//
// Written as a scanner since a backtracking expression needs a stack as deep as the text is long
// and time that is not linear. Each character is looked at a bounded number of times.
#pragma once

#include <cstddef>
#include <string_view>

#include "tokenizer/vocabulary.h"

namespace strata {

class PreSplitter {
  public:
    // `text` must outlive the splitter.
    PreSplitter(std::string_view text, PreSplit rules) : text_(text), rules_(rules) {}

    // The next piece; empty once the text is used up. The pieces cover the text in order.
    std::string_view next();

  private:
    struct Char;
    Char at(std::size_t position) const;
    bool in_word(const Char& c) const;
    bool in_punctuation(const Char& c) const;
    std::size_t contraction_end() const;
    std::size_t word_end(std::size_t position) const;
    std::size_t punctuation_end(std::size_t position) const;
    std::size_t space_end();
    std::size_t piece_end();

    std::string_view text_;
    PreSplit rules_;
    std::size_t position_ = 0;
};

}  // namespace strata
