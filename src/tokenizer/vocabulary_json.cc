// tokenizer.json and tokenizer_config.json, the files of the `tokenizers` and `transformers`
// libraries, as a Vocabulary.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/text.h"
#include "tokenizer/vocabulary.h"

namespace strata {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kQwen35Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What an error shows of a value that came from the file.
constexpr std::size_t kShownBytesMax = 200;

const Json kNull;

// The member, or null where there is none or `object` is no object.
const Json& member(const Json& object, const std::string& key) {
    if (!object.is_object()) return kNull;
    const auto at = object.find(key);
    return at == object.end() ? kNull : *at;
}

std::string_view text_of(const Json& value) {
    const auto* text = value.get_ptr<const Json::string_t*>();
    return text == nullptr ? std::string_view() : std::string_view(*text);
}

std::string_view type_of(const Json& value) { return text_of(member(value, "type")); }

bool is_true(const Json& value) { return value.is_boolean() && value.get<bool>(); }

// A scalar as it stands in the file; of a list or an object only what it is.
std::string shown(const Json& value) {
    if (value.is_structured()) return value.is_array() ? "a list" : "an object";
    return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, kShownBytesMax);
}

Result<Json> parse(std::string_view text, std::string_view name) {
    Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) return STRATA_ERROR(name, " of ", text.size(), " bytes is not JSON.");
    if (!json.is_object()) return STRATA_ERROR(name, " holds ", shown(json), ", not an object.");
    return json;
}

Status refuse_if_true(const Json& object, const std::string& key, std::string_view where) {
    if (!is_true(member(object, key))) return Ok{};
    return STRATA_ERROR("tokenizer.json: ", where, " has ", key, " true, which is not supported.");
}

Result<bool> read_normalizer(const Json& normalizer) {
    if (normalizer.is_null()) return false;
    if (type_of(normalizer) == "NFC") return true;
    if (type_of(normalizer) == "Sequence" && member(normalizer, "normalizers").is_array()) {
        bool nfc = false;
        for (const Json& step : member(normalizer, "normalizers")) {
            if (type_of(step) != "NFC") {
                return STRATA_ERROR("tokenizer.json: a normalizer is of type ",
                                    shown(member(step, "type")), "; only NFC is known.");
            }
            nfc = true;
        }
        return nfc;
    }
    return STRATA_ERROR("tokenizer.json: the normalizer is of type ",
                        shown(member(normalizer, "type")), "; only NFC is known.");
}

Result<PreSplit> read_split(const Json& split) {
    const Json& pattern = member(member(split, "pattern"), "Regex");
    if (text_of(member(split, "behavior")) != "Isolated" || is_true(member(split, "invert"))) {
        return STRATA_ERROR("tokenizer.json: the split has behavior ",
                            shown(member(split, "behavior")), " and invert ",
                            shown(member(split, "invert")), "; wanted \"Isolated\" and false.");
    }
    if (text_of(pattern) == kQwen35Split) return PreSplit::qwen35;
    if (text_of(pattern) == kQwen2Split) return PreSplit::qwen2;
    return STRATA_ERROR("tokenizer.json: the split expression ", shown(pattern),
                        " is neither that of qwen35 nor that of qwen2.");
}

// Sequence [Split, ByteLevel], the byte level without an expression of its own.
Result<PreSplit> read_pre_tokenizer(const Json& pre_tokenizer) {
    const Json& steps = member(pre_tokenizer, "pretokenizers");
    if (type_of(pre_tokenizer) != "Sequence" || !steps.is_array() || steps.size() != 2 ||
        type_of(steps[0]) != "Split" || type_of(steps[1]) != "ByteLevel") {
        return STRATA_ERROR("tokenizer.json: the pre-tokenizer is of type ",
                            shown(member(pre_tokenizer, "type")),
                            "; wanted a Sequence of a Split and a ByteLevel.");
    }
    STRATA_TRY(refuse_if_true(steps[1], "add_prefix_space", "the byte level"));
    const Json& use_regex = member(steps[1], "use_regex");
    if (!use_regex.is_boolean() || use_regex.get<bool>()) {
        return STRATA_ERROR("tokenizer.json: the byte level has use_regex ", shown(use_regex),
                            "; wanted false.");
    }
    return read_split(steps[0]);
}

Status check_frame(const Json& root) {
    const Json& decoder = member(root, "decoder");
    if (type_of(decoder) != "ByteLevel") {
        return STRATA_ERROR("tokenizer.json: the decoder is of type ",
                            shown(member(decoder, "type")), "; wanted ByteLevel.");
    }
    const Json& post = member(root, "post_processor");
    if (!post.is_null() && type_of(post) != "ByteLevel") {
        return STRATA_ERROR("tokenizer.json: the post-processor is of type ",
                            shown(member(post, "type")), "; wanted none or ByteLevel.");
    }
    return Ok{};
}

Status check_model(const Json& model) {
    if (type_of(model) != "BPE") {
        return STRATA_ERROR("tokenizer.json: the model is of type ", shown(member(model, "type")),
                            "; wanted BPE.");
    }
    for (const std::string key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        const Json& value = member(model, key);
        if (value.is_null() || (value.is_string() && text_of(value).empty())) continue;
        return STRATA_ERROR("tokenizer.json: the model has ", key, " ", shown(value),
                            ", which is not supported.");
    }
    const Json& dropout = member(model, "dropout");
    if (!dropout.is_null() && dropout != Json(0.0)) {
        return STRATA_ERROR("tokenizer.json: the model has dropout ", shown(dropout),
                            "; wanted none.");
    }
    STRATA_TRY(refuse_if_true(model, "ignore_merges", "the model"));
    return refuse_if_true(model, "byte_fallback", "the model");
}

Result<TokenId> read_id(const Json& value, std::string_view token) {
    if (value.is_number_unsigned()) {
        const auto id = value.get<std::uint64_t>();
        if (id < static_cast<std::uint64_t>(kVocabularyTokensMax)) return static_cast<TokenId>(id);
    }
    return STRATA_ERROR("tokenizer.json: the id of ", quote(token), " is ", shown(value),
                        "; ids are whole numbers from 0 to ", kVocabularyTokensMax - 1, ".");
}

// Grows the vocabulary to hold `id`; ids in between are unused until they are met.
void make_room(Vocabulary& vocabulary, TokenId id) {
    const auto size = static_cast<std::size_t>(id) + 1;
    if (vocabulary.tokens.size() >= size) return;
    vocabulary.tokens.resize(size);
    vocabulary.kinds.resize(size, TokenKind::unused);
}

Status read_tokens(const Json& vocab, Vocabulary& vocabulary) {
    if (!vocab.is_object()) {
        return STRATA_ERROR("tokenizer.json: model.vocab is ", shown(vocab), ", not an object.");
    }
    for (const auto& [token, value] : vocab.items()) {
        STRATA_ASSIGN(const TokenId id, read_id(value, token));
        make_room(vocabulary, id);
        const auto at = static_cast<std::size_t>(id);
        if (vocabulary.kinds[at] != TokenKind::unused) {
            return STRATA_ERROR("tokenizer.json: ", quote(vocabulary.tokens[at]), " and ",
                                quote(token), " both have the id ", id, ".");
        }
        vocabulary.tokens[at] = token;
        vocabulary.kinds[at] = TokenKind::normal;
    }
    return Ok{};
}

Status read_added_token(const Json& added, const Json& vocab, Vocabulary& vocabulary) {
    const Json& content = member(added, "content");
    if (!content.is_string() || text_of(content).empty()) {
        return STRATA_ERROR("tokenizer.json: an added token has the content ", shown(content),
                            "; wanted some text.");
    }
    const std::string token(text_of(content));
    const std::string where = concat("the added token ", quote(token));
    for (const std::string flag : {"single_word", "lstrip", "rstrip"}) {
        STRATA_TRY(refuse_if_true(added, flag, where));
    }
    STRATA_ASSIGN(const TokenId id, read_id(member(added, "id"), token));
    const Json& normal_id = member(vocab, token);
    if (!normal_id.is_null() && normal_id != Json(id)) {
        return STRATA_ERROR("tokenizer.json: ", quote(token), " has the id ", shown(normal_id),
                            " in model.vocab and ", id, " among the added tokens.");
    }
    make_room(vocabulary, id);
    const auto at = static_cast<std::size_t>(id);
    if (vocabulary.kinds[at] != TokenKind::unused &&
        (vocabulary.kinds[at] != TokenKind::normal || vocabulary.tokens[at] != token)) {
        return STRATA_ERROR("tokenizer.json: ", quote(vocabulary.tokens[at]), " and ", quote(token),
                            " both have the id ", id, ".");
    }
    vocabulary.tokens[at] = token;
    const bool special = is_true(member(added, "special"));
    vocabulary.kinds[at] = special ? TokenKind::control : TokenKind::user_defined;
    if (is_true(member(added, "normalized"))) vocabulary.normalized_tokens.push_back(id);
    return Ok{};
}

Status read_added_tokens(const Json& list, const Json& vocab, Vocabulary& vocabulary) {
    if (list.is_null()) return Ok{};
    if (!list.is_array()) {
        return STRATA_ERROR("tokenizer.json: added_tokens is ", shown(list), ", not a list.");
    }
    for (const Json& added : list) STRATA_TRY(read_added_token(added, vocab, vocabulary));
    std::sort(vocabulary.normalized_tokens.begin(), vocabulary.normalized_tokens.end());
    return Ok{};
}

// Bounds what ids far apart may cost and gives each hole a name of its own, as GGUF writers do.
Status fill_holes(Vocabulary& vocabulary) {
    std::int64_t holes = 0;
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        if (vocabulary.kinds[id] != TokenKind::unused) continue;
        if (++holes > kVocabularyHolesMax) {
            return STRATA_ERROR("tokenizer.json: more than ", kVocabularyHolesMax, " of the ",
                                vocabulary.tokens.size(), " ids have no token.");
        }
        vocabulary.tokens[id] = concat("[PAD", id, "]");
    }
    return Ok{};
}

Status read_merges(const Json& merges, Vocabulary& vocabulary) {
    if (!merges.is_array()) {
        return STRATA_ERROR("tokenizer.json: model.merges is ", shown(merges), ", not a list.");
    }
    vocabulary.merges.reserve(merges.size());
    for (const Json& merge : merges) {
        const std::size_t rank = vocabulary.merges.size();
        if (merge.is_string()) {
            STRATA_ASSIGN(auto halves, split_merge(text_of(merge), rank));
            vocabulary.merges.push_back(std::move(halves));
        } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                   merge[1].is_string()) {
            vocabulary.merges.emplace_back(text_of(merge[0]), text_of(merge[1]));
        } else {
            return STRATA_ERROR("tokenizer.json: merge ", rank, " is ", shown(merge),
                                "; wanted \"left right\" or two strings.");
        }
    }
    return Ok{};
}

// A token that tokenizer_config.json names, as text or as an object with `content`.
Result<std::optional<TokenId>> named_id(const Json& config, const std::string& key,
                                        const std::unordered_map<std::string_view, TokenId>& ids) {
    const Json& value = member(config, key);
    if (value.is_null()) return std::optional<TokenId>();
    const Json& content = value.is_object() ? member(value, "content") : value;
    if (content.is_string()) {
        const auto found = ids.find(text_of(content));
        if (found != ids.end()) return std::optional<TokenId>(found->second);
    }
    return STRATA_ERROR("tokenizer_config.json: ", key, " is ", shown(content),
                        ", which is no token of tokenizer.json.");
}

// The text itself, or the entry "default" of a list of named templates.
std::string read_template(const Json& value) {
    if (!value.is_array()) return std::string(text_of(value));
    for (const Json& entry : value) {
        if (text_of(member(entry, "name")) == "default") {
            return std::string(text_of(member(entry, "template")));
        }
    }
    return {};
}

Status read_config(std::string_view text, Vocabulary& vocabulary) {
    STRATA_ASSIGN(const Json config, parse(text, "tokenizer_config.json"));
    std::unordered_map<std::string_view, TokenId> ids;
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        // An added token goes before a normal one of the same spelling.
        if (vocabulary.kinds[id] == TokenKind::unused) continue;
        const auto value = static_cast<TokenId>(id);
        if (vocabulary.kinds[id] == TokenKind::normal) {
            ids.emplace(vocabulary.tokens[id], value);
        } else {
            ids.insert_or_assign(vocabulary.tokens[id], value);
        }
    }
    STRATA_ASSIGN(vocabulary.bos_id, named_id(config, "bos_token", ids));
    STRATA_ASSIGN(vocabulary.eos_id, named_id(config, "eos_token", ids));
    STRATA_ASSIGN(vocabulary.pad_id, named_id(config, "pad_token", ids));
    STRATA_ASSIGN(vocabulary.unknown_id, named_id(config, "unk_token", ids));
    vocabulary.add_bos = is_true(member(config, "add_bos_token")) && vocabulary.bos_id.has_value();
    vocabulary.chat_template = read_template(member(config, "chat_template"));
    return Ok{};
}

}  // namespace

Result<Vocabulary> vocabulary_from_json(std::string_view tokenizer_json,
                                        std::string_view tokenizer_config_json) {
    STRATA_ASSIGN(const Json root, parse(tokenizer_json, "tokenizer.json"));
    const Json& model = member(root, "model");
    const Json& vocab = member(model, "vocab");
    Vocabulary vocabulary;
    STRATA_TRY(check_model(model));
    STRATA_TRY(check_frame(root));
    STRATA_ASSIGN(vocabulary.nfc, read_normalizer(member(root, "normalizer")));
    STRATA_ASSIGN(vocabulary.pre_split, read_pre_tokenizer(member(root, "pre_tokenizer")));
    STRATA_TRY(read_tokens(vocab, vocabulary));
    STRATA_TRY(read_added_tokens(member(root, "added_tokens"), vocab, vocabulary));
    STRATA_TRY(fill_holes(vocabulary));
    STRATA_TRY(read_merges(member(model, "merges"), vocabulary));
    if (!tokenizer_config_json.empty()) STRATA_TRY(read_config(tokenizer_config_json, vocabulary));
    STRATA_TRY(check_vocabulary(vocabulary));
    return vocabulary;
}

}  // namespace strata
