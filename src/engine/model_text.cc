#include "engine/model_text.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/text.h"
#include "tokenizer/vocabulary.h"

namespace strata {
namespace {

constexpr std::string_view kModelKey = "tokenizer.ggml.model";

using OptionalUint = std::optional<std::uint64_t>;

// A key that may be missing, but must be of its type if it is there.
Result<OptionalUint> optional_uint(const gguf::File& file, std::string_view key) {
    if (file.find(key) == nullptr) return OptionalUint();
    STRATA_ASSIGN(const std::uint64_t value, gguf::require_uint(file, key));
    return OptionalUint(value);
}

Result<std::string> string_or_empty(const gguf::File& file, std::string_view key) {
    if (file.find(key) == nullptr) return std::string();
    STRATA_ASSIGN(const std::string_view text, gguf::require_string(file, key));
    return std::string(text);
}

Result<std::vector<std::string>> strings(const gguf::File& file, std::string_view key) {
    STRATA_ASSIGN(const auto views, gguf::require_strings(file, key));
    return std::vector<std::string>(views.begin(), views.end());
}

Status read_special_tokens(const gguf::File& file, GgufVocabulary& to) {
    STRATA_ASSIGN(to.bos_token_id, optional_uint(file, "tokenizer.ggml.bos_token_id"));
    STRATA_ASSIGN(to.eos_token_id, optional_uint(file, "tokenizer.ggml.eos_token_id"));
    STRATA_ASSIGN(to.eot_token_id, optional_uint(file, "tokenizer.ggml.eot_token_id"));
    STRATA_ASSIGN(to.padding_token_id, optional_uint(file, "tokenizer.ggml.padding_token_id"));
    STRATA_ASSIGN(to.unknown_token_id, optional_uint(file, "tokenizer.ggml.unknown_token_id"));
    constexpr std::string_view kAddKey = "tokenizer.ggml.add_bos_token";
    if (file.find(kAddKey) == nullptr) return Ok{};
    STRATA_ASSIGN(to.add_bos_token, gguf::require_bool(file, kAddKey));
    return Ok{};
}

Status read_vocabulary(const gguf::File& file, GgufVocabulary& to) {
    STRATA_ASSIGN(to.pre, string_or_empty(file, "tokenizer.ggml.pre"));
    STRATA_ASSIGN(to.tokens, strings(file, "tokenizer.ggml.tokens"));
    STRATA_ASSIGN(to.merges, strings(file, "tokenizer.ggml.merges"));
    STRATA_ASSIGN(to.chat_template, string_or_empty(file, "tokenizer.chat_template"));
    STRATA_TRY(read_special_tokens(file, to));
    constexpr std::string_view kKindsKey = "tokenizer.ggml.token_type";
    if (file.find(kKindsKey) == nullptr) return Ok{};
    STRATA_ASSIGN(const auto kinds, gguf::require_ints(file, kKindsKey));
    for (const std::int64_t kind : kinds) {
        to.token_type.push_back(
            static_cast<std::int32_t>(std::clamp<std::int64_t>(kind, INT32_MIN, INT32_MAX)));
    }
    return Ok{};
}

}  // namespace

Result<std::optional<Tokenizer>> tokenizer_of(const gguf::File& file, std::int64_t vocabulary) {
    STRATA_ASSIGN(const std::string model, string_or_empty(file, kModelKey));
    if (model.empty() || model == "none" || model == "no_vocab") return std::optional<Tokenizer>();
    GgufVocabulary source;
    source.model = model;
    STRATA_TRY(read_vocabulary(file, source));
    auto parsed = vocabulary_from_gguf(std::move(source));
    if (!parsed.ok()) return STRATA_ERROR(quote(file.path()), ": ", parsed.error().message);
    auto tokenizer = Tokenizer::create(std::move(parsed).value());
    if (!tokenizer.ok()) return STRATA_ERROR(quote(file.path()), ": ", tokenizer.error().message);
    if (tokenizer->size() > vocabulary) {
        return STRATA_ERROR(quote(file.path()), ": the tokenizer has ", tokenizer->size(),
                            " tokens, wanted at most the model's ", vocabulary);
    }
    return std::optional<Tokenizer>(std::move(tokenizer).value());
}

Result<std::vector<std::int32_t>> end_tokens_of(const gguf::File& file, std::int64_t vocabulary) {
    std::vector<std::uint64_t> ids;
    for (const std::string_view key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"}) {
        if (file.find(key) == nullptr) continue;
        STRATA_ASSIGN(const std::uint64_t id, gguf::require_uint(file, key));
        ids.push_back(id);
    }
    constexpr std::string_view kListKey = "tokenizer.ggml.eos_token_ids";
    if (file.find(kListKey) != nullptr) {
        STRATA_ASSIGN(const auto list, gguf::require_uints(file, kListKey));
        ids.insert(ids.end(), list.begin(), list.end());
    }
    std::vector<std::int32_t> tokens;
    for (const std::uint64_t id : ids) {
        if (id >= static_cast<std::uint64_t>(vocabulary)) {
            return STRATA_ERROR(quote(file.path()), ": an end token is ", id,
                                ", wanted one below the vocabulary of ", vocabulary);
        }
        tokens.push_back(static_cast<std::int32_t>(id));
    }
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    return tokens;
}

Result<Sampling> sampling_of(const gguf::File& file) {
    Sampling sampling;
    const auto read = [&](std::string_view key, double fallback) {
        return gguf::float_or(file, concat("general.sampling.", key), fallback);
    };
    STRATA_ASSIGN(sampling.temperature, read("temp", sampling.temperature));
    STRATA_ASSIGN(sampling.top_p, read("top_p", sampling.top_p));
    STRATA_ASSIGN(sampling.min_p, read("min_p", sampling.min_p));
    STRATA_ASSIGN(sampling.repeat_penalty, read("penalty_repeat", sampling.repeat_penalty));
    STRATA_ASSIGN(const std::uint64_t top_k, gguf::uint_or(file, "general.sampling.top_k", 0));
    sampling.top_k = static_cast<std::int64_t>(std::min<std::uint64_t>(top_k, INT32_MAX));
    if (Status status = check(sampling); !status.ok()) {
        return STRATA_ERROR(quote(file.path()), ": general.sampling: ", status.error().message);
    }
    return sampling;
}

Status check_tokenizer(const gguf::File& draft, const gguf::File& target) {
    constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
    if (draft.find(kTokensKey) == nullptr || target.find(kTokensKey) == nullptr) return Ok{};
    STRATA_ASSIGN(const auto theirs, gguf::require_strings(draft, kTokensKey));
    STRATA_ASSIGN(const auto ours, gguf::require_strings(target, kTokensKey));
    // Either list may be padded further than the other.
    for (std::size_t i = 0; i < std::min(theirs.size(), ours.size()); ++i) {
        if (theirs[i] == ours[i]) continue;
        return STRATA_ERROR(quote(draft.path()), " was made for another tokenizer: token ", i,
                            " is ", quote(theirs[i]), ", wanted the model's ", quote(ours[i]),
                            "; strata convert DIR -o OUT --target MODEL makes a draft's file "
                            "with the model's tokenizer");
    }
    return Ok{};
}

}  // namespace strata
