// What a tokenizer is made of, as a file states it: tokens, merges, the pre-split and named ids.
//
// Two sources give the same struct: a `tokenizer.json` with its `tokenizer_config.json`, and the
// tokenizer.ggml.* arrays of a GGUF file, which the caller reads. Both are checked here, so that
// every Vocabulary that comes out of a function below is safe to hand to Tokenizer::create.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace strata {

using TokenId = std::int32_t;

// Limits on what a file may claim.
inline constexpr std::int64_t kVocabularyTokensMax = 1 << 21;
inline constexpr std::int64_t kVocabularyMergesMax = 1 << 22;
// Bytes of one token's spelling.
inline constexpr std::int64_t kTokenBytesMax = 1 << 16;
// Ids below the largest one that a tokenizer.json may leave without a token.
inline constexpr std::int64_t kVocabularyHolesMax = 1 << 16;

// The values are those of tokenizer.ggml.token_type.
enum class TokenKind : std::int8_t {
    normal = 1,
    unknown = 2,
    control = 3,       // an added token marked special: <|im_end|>
    user_defined = 4,  // an added token not marked special: <think>
    unused = 5,        // an id without a meaning; decodes to nothing
    byte = 6,          // of other tokenizer families; refused in a byte-level vocabulary
};

// How text is cut before merging.
//   qwen35: (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}
//           | ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   qwen2:  the same with \p{L} in place of [\p{L}\p{M}], and marks among the punctuation
enum class PreSplit { qwen35, qwen2 };

// The name that tokenizer.ggml.pre uses.
std::string_view pre_split_name(PreSplit split);

struct Vocabulary {
    // Index = id. A normal token is spelled in the byte-level alphabet (one character a byte); an
    // added token (control, user_defined, unknown) is plain text; an unused one is anything.
    std::vector<std::string> tokens;
    std::vector<TokenKind> kinds;
    // Lowest rank first; both halves and their concatenation are normal tokens.
    std::vector<std::pair<std::string, std::string>> merges;
    PreSplit pre_split = PreSplit::qwen35;
    // Text is brought to Unicode normalization form C before it is cut.
    bool nfc = true;
    // Ids of the added tokens that are looked for in normalized text instead of the raw text
    // (`normalized` in tokenizer.json), ascending.
    std::vector<TokenId> normalized_tokens;

    std::optional<TokenId> bos_id;
    std::optional<TokenId> eos_id;
    std::optional<TokenId> eot_id;
    std::optional<TokenId> pad_id;
    std::optional<TokenId> unknown_id;
    // A prompt begins with bos_id; true only where bos_id is there. encode() never adds it.
    bool add_bos = false;
    // Jinja source, empty where the source has none.
    std::string chat_template;
};

// `tokenizer_json`: the whole file, of model type BPE with a byte-level pre-tokenizer and decoder.
// `tokenizer_config_json`: the whole file or empty; gives the named ids and the chat template.
// Ids without a token become unused tokens. Errors: not JSON; another model type, normalizer,
// split expression or post-processor; an added token with single_word, lstrip or rstrip; ids that
// repeat, are negative or lie beyond the limits; a merge of things that are no tokens.
Result<Vocabulary> vocabulary_from_json(std::string_view tokenizer_json,
                                        std::string_view tokenizer_config_json);

// The values of tokenizer.ggml.*, read by the caller. A key that is missing is an empty vector, an
// empty string or no value.
struct GgufVocabulary {
    std::string model;  // "gpt2" is the byte-level BPE
    std::string pre;    // "qwen35" or "qwen2"
    std::vector<std::string> tokens;
    std::vector<std::int32_t> token_type;  // as many as tokens, or empty: all normal
    std::vector<std::string> merges;       // "left right"
    std::optional<std::uint64_t> bos_token_id;
    std::optional<std::uint64_t> eos_token_id;
    std::optional<std::uint64_t> eot_token_id;
    std::optional<std::uint64_t> padding_token_id;
    std::optional<std::uint64_t> unknown_token_id;
    std::optional<bool> add_bos_token;
    std::string chat_template;
};

// GGUF has no key for the normalizer; both splits come from tokenizers that use NFC, so nfc is
// true. Errors: another model or pre, sizes that disagree, kinds or ids out of range, a merge that
// is not two tokens.
Result<Vocabulary> vocabulary_from_gguf(GgufVocabulary source);
// The inverse, for a writer: every key filled.
GgufVocabulary vocabulary_to_gguf(const Vocabulary& vocabulary);

// "left right" as its two halves; `rank` is for the error.
Result<std::pair<std::string, std::string>> split_merge(std::string_view merge, std::size_t rank);

// What both readers check last; for a Vocabulary filled by hand. The error names what is wrong.
Status check_vocabulary(const Vocabulary& vocabulary);

}  // namespace strata
