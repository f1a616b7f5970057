#include <string>

#include "base/check.h"
#include "base/text.h"
#include "synth/synth.h"
#include "tokenizer/byte_alphabet.h"

namespace strata::synth {

Vocabulary byte_vocabulary(std::int64_t tokens) {
    STRATA_CHECK(tokens >= kByteVocabularyTokens);
    Vocabulary vocabulary;
    const auto add = [&](std::string spelling, TokenKind kind) {
        vocabulary.tokens.push_back(std::move(spelling));
        vocabulary.kinds.push_back(kind);
        return static_cast<TokenId>(vocabulary.tokens.size() - 1);
    };
    for (int byte = 0; byte < 256; ++byte) {
        add(byte_spelling(static_cast<std::uint8_t>(byte)), TokenKind::normal);
    }
    vocabulary.pad_id = add("<|endoftext|>", TokenKind::control);
    add("<|im_start|>", TokenKind::control);
    vocabulary.eos_id = add("<|im_end|>", TokenKind::control);
    add("<think>", TokenKind::user_defined);
    add("</think>", TokenKind::user_defined);
    while (static_cast<std::int64_t>(vocabulary.tokens.size()) < tokens) {
        add(concat("[PAD", vocabulary.tokens.size(), "]"), TokenKind::unused);
    }
    return vocabulary;
}

}  // namespace strata::synth
