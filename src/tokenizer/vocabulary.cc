#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"

namespace strata {

namespace {

constexpr std::string_view kGgufModel = "gpt2";
constexpr int kKindMin = 1;
constexpr int kKindMax = 6;

// Spellings of one sort of token with their ids.
using Spellings = std::unordered_map<std::string_view, std::size_t>;

Status add_spelling(Spellings& spellings, const Vocabulary& vocabulary, std::size_t id) {
    const std::string& token = vocabulary.tokens[id];
    if (token.empty()) return STRATA_ERROR("Token ", id, " of the vocabulary is an empty string.");
    const auto [at, inserted] = spellings.emplace(token, id);
    if (!inserted) {
        return STRATA_ERROR("Tokens ", at->second, " and ", id, " of the vocabulary are both ",
                            quote(token), ".");
    }
    return Ok{};
}

Status check_tokens(const Vocabulary& vocabulary, Spellings& normal) {
    Spellings added;
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        const std::size_t bytes = vocabulary.tokens[id].size();
        if (bytes > static_cast<std::size_t>(kTokenBytesMax)) {
            return STRATA_ERROR("Token ", id, " of the vocabulary has ", bytes,
                                " bytes; the limit is ", kTokenBytesMax, ".");
        }
        switch (vocabulary.kinds[id]) {
            case TokenKind::normal:
                STRATA_TRY(add_spelling(normal, vocabulary, id));
                break;
            case TokenKind::unknown:
            case TokenKind::control:
            case TokenKind::user_defined:
                STRATA_TRY(add_spelling(added, vocabulary, id));
                break;
            case TokenKind::unused:
                break;
            default:
                return STRATA_ERROR("Token ", id, " of the vocabulary is of kind ",
                                    static_cast<int>(vocabulary.kinds[id]),
                                    "; a byte-level vocabulary has the kinds 1 to 5.");
        }
    }
    return Ok{};
}

Status check_merges(const Vocabulary& vocabulary, const Spellings& normal) {
    if (vocabulary.merges.size() > static_cast<std::size_t>(kVocabularyMergesMax)) {
        return STRATA_ERROR("The vocabulary has ", vocabulary.merges.size(),
                            " merges; the limit is ", kVocabularyMergesMax, ".");
    }
    std::unordered_set<std::uint64_t> pairs;
    for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
        const auto& [left, right] = vocabulary.merges[rank];
        for (const std::string& token : {left, right, left + right}) {
            if (normal.count(token) == 0) {
                return STRATA_ERROR("Merge ", rank, " (", quote(left), " and ", quote(right),
                                    ") needs ", quote(token), ", which is no normal token.");
            }
        }
        const std::uint64_t pair = normal.at(left) << 32 | normal.at(right);
        if (!pairs.insert(pair).second) {
            return STRATA_ERROR("Merge ", rank, " (", quote(left), " and ", quote(right),
                                ") is there a second time.");
        }
    }
    return Ok{};
}

Status check_named_id(std::string_view name, std::optional<TokenId> id, std::size_t size) {
    if (!id || (*id >= 0 && static_cast<std::size_t>(*id) < size)) return Ok{};
    return STRATA_ERROR("The ", name, " token is ", *id, "; the vocabulary has the ids 0 to ",
                        size - 1, ".");
}

Status check_names(const Vocabulary& vocabulary) {
    const std::size_t size = vocabulary.tokens.size();
    STRATA_TRY(check_named_id("bos", vocabulary.bos_id, size));
    STRATA_TRY(check_named_id("eos", vocabulary.eos_id, size));
    STRATA_TRY(check_named_id("eot", vocabulary.eot_id, size));
    STRATA_TRY(check_named_id("pad", vocabulary.pad_id, size));
    STRATA_TRY(check_named_id("unknown", vocabulary.unknown_id, size));
    if (vocabulary.add_bos && !vocabulary.bos_id) {
        return STRATA_ERROR("The vocabulary asks for a bos token in front, but names none.");
    }
    TokenId last = -1;
    for (const TokenId id : vocabulary.normalized_tokens) {
        STRATA_TRY(check_named_id("normalized", id, size));
        const bool in_order = id > last;
        last = id;
        const TokenKind kind = vocabulary.kinds[static_cast<std::size_t>(id)];
        if (in_order && kind != TokenKind::normal && kind != TokenKind::unused) continue;
        return STRATA_ERROR("Token ", id, " of the vocabulary is listed as a normalized one, but ",
                            in_order ? "is no added token." : "is out of order.");
    }
    return Ok{};
}

Result<std::optional<TokenId>> gguf_id(std::string_view key, std::optional<std::uint64_t> value,
                                       std::size_t size) {
    if (!value) return std::optional<TokenId>();
    if (*value >= size) {
        return STRATA_ERROR("tokenizer.ggml.", key, " is ", *value, "; the vocabulary has ", size,
                            " tokens.");
    }
    return std::optional<TokenId>(static_cast<TokenId>(*value));
}

std::optional<std::uint64_t> gguf_value(std::optional<TokenId> id) {
    if (!id) return std::nullopt;
    return static_cast<std::uint64_t>(*id);
}

Result<std::vector<TokenKind>> gguf_kinds(const GgufVocabulary& source) {
    const std::size_t size = source.tokens.size();
    if (source.token_type.empty()) return std::vector<TokenKind>(size, TokenKind::normal);
    if (source.token_type.size() != size) {
        return STRATA_ERROR("tokenizer.ggml.token_type has ", source.token_type.size(),
                            " values for the ", size, " of tokenizer.ggml.tokens.");
    }
    std::vector<TokenKind> kinds;
    kinds.reserve(size);
    for (std::size_t id = 0; id < size; ++id) {
        const std::int32_t kind = source.token_type[id];
        if (kind < kKindMin || kind > kKindMax) {
            return STRATA_ERROR("tokenizer.ggml.token_type of token ", id, " is ", kind,
                                "; the kinds are ", kKindMin, " to ", kKindMax, ".");
        }
        kinds.push_back(static_cast<TokenKind>(kind));
    }
    return kinds;
}

}  // namespace

std::string_view pre_split_name(PreSplit split) {
    return split == PreSplit::qwen35 ? "qwen35" : "qwen2";
}

Status check_vocabulary(const Vocabulary& vocabulary) {
    const std::size_t size = vocabulary.tokens.size();
    if (size == 0 || size > static_cast<std::size_t>(kVocabularyTokensMax)) {
        return STRATA_ERROR("The vocabulary has ", size, " tokens; it may have 1 to ",
                            kVocabularyTokensMax, ".");
    }
    if (vocabulary.kinds.size() != size) {
        return STRATA_ERROR("The vocabulary has ", size, " tokens and ", vocabulary.kinds.size(),
                            " kinds of tokens.");
    }
    Spellings normal;
    STRATA_TRY(check_tokens(vocabulary, normal));
    STRATA_TRY(check_merges(vocabulary, normal));
    return check_names(vocabulary);
}

Result<Vocabulary> vocabulary_from_gguf(GgufVocabulary source) {
    if (source.model != kGgufModel) {
        return STRATA_ERROR("tokenizer.ggml.model is ", quote(source.model), "; only '", kGgufModel,
                            "', the byte-level BPE, is known.");
    }
    Vocabulary vocabulary;
    if (source.pre == pre_split_name(PreSplit::qwen2)) {
        vocabulary.pre_split = PreSplit::qwen2;
    } else if (source.pre != pre_split_name(PreSplit::qwen35)) {
        return STRATA_ERROR("tokenizer.ggml.pre is ", quote(source.pre),
                            "; 'qwen35' and 'qwen2' are known.");
    }
    STRATA_ASSIGN(vocabulary.kinds, gguf_kinds(source));
    const std::size_t size = source.tokens.size();
    vocabulary.tokens = std::move(source.tokens);
    vocabulary.merges.reserve(source.merges.size());
    for (std::size_t rank = 0; rank < source.merges.size(); ++rank) {
        STRATA_ASSIGN(auto merge, split_merge(source.merges[rank], rank));
        vocabulary.merges.push_back(std::move(merge));
    }
    STRATA_ASSIGN(vocabulary.bos_id, gguf_id("bos_token_id", source.bos_token_id, size));
    STRATA_ASSIGN(vocabulary.eos_id, gguf_id("eos_token_id", source.eos_token_id, size));
    STRATA_ASSIGN(vocabulary.eot_id, gguf_id("eot_token_id", source.eot_token_id, size));
    STRATA_ASSIGN(vocabulary.pad_id, gguf_id("padding_token_id", source.padding_token_id, size));
    STRATA_ASSIGN(vocabulary.unknown_id,
                  gguf_id("unknown_token_id", source.unknown_token_id, size));
    vocabulary.add_bos = source.add_bos_token.value_or(false);
    vocabulary.chat_template = std::move(source.chat_template);
    STRATA_TRY(check_vocabulary(vocabulary));
    return vocabulary;
}

GgufVocabulary vocabulary_to_gguf(const Vocabulary& vocabulary) {
    GgufVocabulary target;
    target.model = kGgufModel;
    target.pre = pre_split_name(vocabulary.pre_split);
    target.tokens = vocabulary.tokens;
    target.token_type.reserve(vocabulary.kinds.size());
    for (const TokenKind kind : vocabulary.kinds) {
        target.token_type.push_back(static_cast<std::int32_t>(kind));
    }
    target.merges.reserve(vocabulary.merges.size());
    for (const auto& [left, right] : vocabulary.merges) {
        target.merges.push_back(left + ' ' + right);
    }
    target.bos_token_id = gguf_value(vocabulary.bos_id);
    target.eos_token_id = gguf_value(vocabulary.eos_id);
    target.eot_token_id = gguf_value(vocabulary.eot_id);
    target.padding_token_id = gguf_value(vocabulary.pad_id);
    target.unknown_token_id = gguf_value(vocabulary.unknown_id);
    target.add_bos_token = vocabulary.add_bos;
    target.chat_template = vocabulary.chat_template;
    return target;
}

Result<std::pair<std::string, std::string>> split_merge(std::string_view merge, std::size_t rank) {
    const std::size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
        return STRATA_ERROR("Merge ", rank, " is ", quote(merge),
                            "; it should be two tokens with one space between them.");
    }
    return std::pair(std::string(merge.substr(0, space)), std::string(merge.substr(space + 1)));
}

}  // namespace strata
