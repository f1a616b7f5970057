#include "tokenizer/pre_split.h"

#include "tokenizer/unicode.h"

namespace strata {

struct PreSplitter::Char {
    bool here = false;  // false at the end of the text
    CharClass kind = CharClass::other;
    char32_t code = 0;  // 0xFFFFFFFF for a byte outside any character
    std::size_t end = 0;
};

namespace {

constexpr char32_t kNoCharacter = 0xFFFFFFFF;
// LATIN SMALL LETTER LONG S folds to s, so the reference's case-insensitive 's takes it.
constexpr char32_t kLongS = 0x17F;

char32_t fold_ascii(char32_t code) {
    if (code == kLongS) return U's';
    return code >= U'A' && code <= U'Z' ? code + 32 : code;
}

bool is_white(CharClass kind) { return kind == CharClass::space || kind == CharClass::newline; }

}  // namespace

PreSplitter::Char PreSplitter::at(std::size_t position) const {
    if (position >= text_.size()) return {};
    const Utf8Step step = utf8_step(text_, position);
    if (step.state != Utf8::whole) return {true, CharClass::other, kNoCharacter, position + 1};
    return {true, char_class(step.code), step.code, position + step.length};
}

bool PreSplitter::in_word(const Char& c) const {
    if (!c.here) return false;
    return c.kind == CharClass::letter || (c.kind == CharClass::mark && rules_ == PreSplit::qwen35);
}

bool PreSplitter::in_punctuation(const Char& c) const {
    if (!c.here) return false;
    return c.kind == CharClass::other || (c.kind == CharClass::mark && rules_ == PreSplit::qwen2);
}

// The end of 's 't 're 've 'm 'll 'd at the position, which holds an apostrophe; or the position.
std::size_t PreSplitter::contraction_end() const {
    const Char first = at(position_ + 1);
    if (!first.here) return position_;
    const char32_t a = fold_ascii(first.code);
    if (a == U's' || a == U't' || a == U'm' || a == U'd') return first.end;
    const char32_t wanted = a == U'r' || a == U'v' ? U'e' : a == U'l' ? U'l' : 0;
    if (wanted == 0) return position_;
    const Char second = at(first.end);
    return second.here && fold_ascii(second.code) == wanted ? second.end : position_;
}

std::size_t PreSplitter::word_end(std::size_t position) const {
    for (Char c = at(position); in_word(c); c = at(position)) position = c.end;
    return position;
}

std::size_t PreSplitter::punctuation_end(std::size_t position) const {
    for (Char c = at(position); in_punctuation(c); c = at(position)) position = c.end;
    while (position < text_.size() && (text_[position] == '\r' || text_[position] == '\n')) {
        ++position;
    }
    return position;
}

// The three white-space alternatives: up to the last newline of the run; else the run without its
// last character, which goes with what follows; else all of it.
std::size_t PreSplitter::space_end() {
    std::size_t end = position_;
    std::size_t last_begin = position_;
    std::size_t newline_end = position_;
    for (Char c = at(end); c.here && is_white(c.kind); c = at(end)) {
        last_begin = end;
        end = c.end;
        if (c.kind == CharClass::newline) newline_end = end;
    }
    if (newline_end > position_) return newline_end;
    const bool at_text_end = end == text_.size();
    return at_text_end || last_begin == position_ ? end : last_begin;
}

std::size_t PreSplitter::piece_end() {
    const Char first = at(position_);
    if (first.code == U'\'') {
        const std::size_t end = contraction_end();
        if (end > position_) return end;
    }
    if (in_word(first)) return word_end(first.end);
    if (first.kind == CharClass::number) return first.end;
    if (first.kind != CharClass::newline) {
        const Char second = at(first.end);
        if (in_word(second)) return word_end(second.end);
        if (in_punctuation(first) || (first.code == U' ' && in_punctuation(second))) {
            return punctuation_end(first.end);
        }
    }
    return space_end();
}

std::string_view PreSplitter::next() {
    if (position_ >= text_.size()) return {};
    const std::size_t begin = position_;
    position_ = piece_end();
    return text_.substr(begin, position_ - begin);
}

}  // namespace strata
