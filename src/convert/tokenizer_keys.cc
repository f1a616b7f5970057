#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/text.h"
#include "convert/fields.h"
#include "convert/metadata.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace strata::convert {
namespace {

using gguf::Value;

constexpr std::uint64_t kTokenizerBytesMax = std::uint64_t{1} << 30;

bool exists(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
}

// The whole file; an empty string where there is none.
Result<std::string> read_text(const std::string& path) {
    if (!exists(path)) return std::string();
    STRATA_ASSIGN(const MappedFile file, MappedFile::open(path));
    if (file.bytes().size() > kTokenizerBytesMax) {
        return STRATA_ERROR(quote(path), " has ", file.bytes().size(), " bytes, wanted at most ",
                            kTokenizerBytesMax);
    }
    return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

void set_optional(gguf::Writer& writer, std::string_view key, std::optional<std::uint64_t> id) {
    if (id) writer.set(key, Value::of(static_cast<std::uint32_t>(*id)));
}

// Unused tokens up to the rows of the embedding, which releases round up.
Status pad_vocabulary(const std::string& path, const HfConfig& config, Vocabulary& vocabulary) {
    const auto wanted = static_cast<std::size_t>(config.model.vocabulary);
    if (vocabulary.tokens.size() > wanted) {
        return STRATA_ERROR(quote(path), " has ", vocabulary.tokens.size(),
                            " tokens, wanted at most the model's vocabulary of ", wanted);
    }
    while (vocabulary.tokens.size() < wanted) {
        vocabulary.tokens.push_back(concat("[PAD", vocabulary.tokens.size(), "]"));
        vocabulary.kinds.push_back(TokenKind::unused);
    }
    return Ok{};
}

struct NamedIds {
    std::optional<std::uint64_t> eos;
    std::optional<std::uint64_t> eot;
};

Result<NamedIds> set_vocabulary(const std::string& directory, const HfConfig& config,
                                gguf::Writer& writer) {
    const std::string path = directory + "/tokenizer.json";
    if (!exists(path)) {
        writer.set("tokenizer.ggml.model", Value::string("none"));
        return NamedIds{};
    }
    STRATA_ASSIGN(const std::string json, read_text(path));
    STRATA_ASSIGN(const std::string settings, read_text(directory + "/tokenizer_config.json"));
    Result<Vocabulary> parsed = vocabulary_from_json(json, settings);
    if (!parsed.ok()) return STRATA_ERROR(quote(path), ": ", parsed.error().message);
    Vocabulary vocabulary = std::move(parsed).value();
    STRATA_TRY(pad_vocabulary(path, config, vocabulary));
    // The file wins over tokenizer_config.json, as in the reference.
    STRATA_ASSIGN(std::string chat_template, read_text(directory + "/chat_template.jinja"));
    if (!chat_template.empty()) vocabulary.chat_template = std::move(chat_template);

    set_vocabulary_keys(vocabulary, writer);
    const NamedIds named{vocabulary.eos_id, vocabulary.eot_id};
    const Result<Tokenizer> usable = Tokenizer::create(std::move(vocabulary));
    if (!usable.ok()) return STRATA_ERROR(quote(path), ": ", usable.error().message);
    return named;
}

Status set_sampling(const Fields& generation, gguf::Writer& writer) {
    // In the ranges in which a loaded file's must be.
    struct Number {
        const char* key;
        const char* gguf_key;
        double least;
        double most;
    };
    constexpr Number kNumbers[] = {
        {"temperature", "general.sampling.temp", 0, 1e6},
        {"top_p", "general.sampling.top_p", 0, 1},
        {"min_p", "general.sampling.min_p", 0, 1},
        {"repetition_penalty", "general.sampling.penalty_repeat", 1e-6, 1e6}};
    for (const auto& [key, gguf_key, least, most] : kNumbers) {
        if (!generation.has(key)) continue;
        STRATA_ASSIGN(const double value, generation.number(key));
        if (value < least || value > most) {
            return generation.wrong(key, concat(least, " to ", most));
        }
        writer.set(gguf_key, Value::of(static_cast<float>(value)));
    }
    if (!generation.has("top_k")) return Ok{};
    STRATA_ASSIGN(const std::int64_t top_k, generation.integer("top_k", 0, std::int64_t{1} << 30));
    writer.set("general.sampling.top_k", Value::of(static_cast<std::int32_t>(top_k)));
    return Ok{};
}

void set_end_tokens(const std::vector<std::int64_t>& ids, const NamedIds& named,
                    gguf::Writer& writer) {
    std::vector<std::uint32_t> all;
    for (const std::int64_t id : ids) {
        const auto token = static_cast<std::uint32_t>(id);
        if (std::find(all.begin(), all.end(), token) == all.end()) all.push_back(token);
    }
    if (all.empty() && named.eos) all.push_back(static_cast<std::uint32_t>(*named.eos));
    std::optional<std::uint64_t> eot = named.eot;
    if (!eot && all.size() > 1) eot = all[1];
    if (!all.empty()) set_optional(writer, "tokenizer.ggml.eos_token_id", all[0]);
    set_optional(writer, "tokenizer.ggml.eot_token_id", eot);
    if (all.size() > 1) writer.set("tokenizer.ggml.eos_token_ids", Value::array(all));
}

}  // namespace

void set_vocabulary_keys(const Vocabulary& vocabulary, gguf::Writer& writer) {
    const GgufVocabulary keys = vocabulary_to_gguf(vocabulary);
    writer.set("tokenizer.ggml.model", Value::string(keys.model));
    writer.set("tokenizer.ggml.pre", Value::string(keys.pre));
    writer.set("tokenizer.ggml.tokens", Value::array(keys.tokens));
    writer.set("tokenizer.ggml.token_type", Value::array(keys.token_type));
    writer.set("tokenizer.ggml.merges", Value::array(keys.merges));
    set_optional(writer, "tokenizer.ggml.bos_token_id", keys.bos_token_id);
    set_optional(writer, "tokenizer.ggml.eos_token_id", keys.eos_token_id);
    set_optional(writer, "tokenizer.ggml.eot_token_id", keys.eot_token_id);
    set_optional(writer, "tokenizer.ggml.padding_token_id", keys.padding_token_id);
    set_optional(writer, "tokenizer.ggml.unknown_token_id", keys.unknown_token_id);
    writer.set("tokenizer.ggml.add_bos_token", Value::of(keys.add_bos_token.value_or(false)));
    if (!keys.chat_template.empty()) {
        writer.set("tokenizer.chat_template", Value::string(keys.chat_template));
    }
}

Status set_tokenizer_keys(const std::string& directory, const HfConfig& config,
                          gguf::Writer& writer) {
    STRATA_ASSIGN(const NamedIds named, set_vocabulary(directory, config, writer));
    const std::string path = directory + "/generation_config.json";
    std::vector<std::int64_t> ends;
    if (exists(path)) {
        STRATA_ASSIGN(const nlohmann::json document, read_json_object(path));
        const Fields generation(document, path);
        STRATA_ASSIGN(ends, generation.integers("eos_token_id", 0, config.model.vocabulary - 1));
        STRATA_TRY(set_sampling(generation, writer));
    }
    if (ends.empty() && named.eos) ends.push_back(static_cast<std::int64_t>(*named.eos));
    // The text model's own end token ends a document, also where chats end with another.
    if (ends.empty() || !exists(path)) {
        ends.insert(ends.end(), config.end_tokens.begin(), config.end_tokens.end());
    }
    set_end_tokens(ends, named, writer);
    return Ok{};
}

}  // namespace strata::convert
