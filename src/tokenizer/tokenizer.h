// Byte-level BPE: text to token ids and back.
//
// encode() is for text that a user, a file or a tool wrote: it never yields an added token
// (control or user-defined), so "<|im_end|>" in it is nine ordinary characters. What a template
// wrote goes through encode_with_special().
//
// Text that is not UTF-8 is taken as it is: a byte that belongs to no character is cut off as
// punctuation would be (never joined to letters or white space), passes through the normalizer
// unchanged, ends the stretch that is normalized, and comes back from decode() as the same byte.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/vocabulary.h"

namespace strata {

enum class ControlTokens { keep, skip };

// Immutable after create() and safe to share between threads. Movable.
class Tokenizer {
  public:
    // Errors: as check_vocabulary(), or a byte that no token spells.
    static Result<Tokenizer> create(Vocabulary vocabulary);

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    // Ids of `text` with no added token among them; bos is never put in front. Time is
    // O(n log n) in the bytes of the longest piece, memory O(n).
    std::vector<TokenId> encode(std::string_view text) const;
    // As encode(), but each spelling of an added token in `text` becomes that token: the leftmost,
    // and of those that start there the longest.
    std::vector<TokenId> encode_with_special(std::string_view text) const;

    // The bytes of the ids one after another; not always UTF-8 (see TextStream in stream.h).
    // Unused ids and ids outside the vocabulary add nothing.
    std::string decode(std::span<const TokenId> ids, ControlTokens = ControlTokens::keep) const;
    // The raw bytes of one token; empty for an unused id or one outside the vocabulary. Valid as
    // long as the tokenizer.
    std::string_view token_bytes(TokenId id) const;

    // Ids are in [0, size()).
    std::int64_t size() const;
    // The id of the added token (control or user-defined) with this exact spelling.
    std::optional<TokenId> find(std::string_view spelling) const;
    // Control and unknown tokens: those that stand for no text of the model's answer.
    bool is_control(TokenId id) const;
    // Control, unknown and user-defined tokens: those that encode() never yields.
    bool is_added(TokenId id) const;
    // Everything the tokenizer was made from.
    const Vocabulary& vocabulary() const;

  private:
    struct Tables;
    explicit Tokenizer(std::unique_ptr<const Tables> tables);

    std::unique_ptr<const Tables> tables_;
};

}  // namespace strata
