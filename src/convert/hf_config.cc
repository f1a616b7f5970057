#include "convert/hf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "base/text.h"
#include "convert/fields.h"
#include "model/limits.h"

namespace strata::convert {
namespace {

using model::kContextMax;
using model::kExpertsActiveMax;
using model::kExpertsMax;
using model::kKernelMax;
using model::kLayersMax;
using model::kNgramHeadsMax;
using model::kNgramSizeMax;
using model::kStreamsMax;
using model::kWidthMax;

// Above every published model, and small enough that products of two cannot wrap.
constexpr std::int64_t kNgramBaseMax = std::int64_t{1} << 40;
constexpr std::int64_t kBudgetMax = std::int64_t{1} << 30;
constexpr std::int64_t kSeedMax = std::int64_t{1} << 62;
// Of the reference's configuration classes.
constexpr std::int64_t kIntervalDefault = 4;
constexpr double kPartialRotaryDefault = 0.25;
constexpr std::int64_t kSeedDefault = 1234;

template <typename T>
Status read(const Fields& fields, std::string_view key, std::int64_t high, T& out) {
    STRATA_ASSIGN(const std::int64_t value, fields.integer(key, 1, high));
    out = static_cast<T>(value);
    return Ok{};
}

// A string that may be missing but has one value that this version computes.
Status expect_string(const Fields& fields, std::string_view key, std::string_view wanted) {
    if (!fields.has(key)) return Ok{};
    const auto value = fields.string(key);
    if (!value.ok() || *value != wanted) return fields.wrong(key, concat('"', wanted, '"'));
    return Ok{};
}

Status expect_false(const Fields& fields, std::string_view key) {
    STRATA_ASSIGN(const bool value, fields.boolean_or(key, false));
    if (value) return fields.wrong(key, "false");
    return Ok{};
}

Status check_architecture(const Fields& root) {
    STRATA_ASSIGN(const auto architectures, root.strings("architectures"));
    for (const std::string& name : architectures) {
        if (name != "Qwen4ExpForConditionalGeneration" && name != "Qwen4ExpForCausalLM") {
            return root.wrong("architectures",
                              "Qwen4ExpForConditionalGeneration or Qwen4ExpForCausalLM");
        }
    }
    const auto type = root.string("model_type");
    if (!type.ok() || (*type != "qwen4_exp" && *type != "qwen4_exp_text")) {
        return root.wrong("model_type", "\"qwen4_exp\" or \"qwen4_exp_text\"");
    }
    return Ok{};
}

Status read_sizes(const Fields& text, model::Config& c) {
    STRATA_TRY(read(text, "num_hidden_layers", kLayersMax, c.layers));
    STRATA_TRY(read(text, "hidden_size", kWidthMax, c.hidden));
    STRATA_TRY(read(text, "vocab_size", kWidthMax, c.vocabulary));
    STRATA_TRY(read(text, "max_position_embeddings", kContextMax, c.context));
    STRATA_TRY(read(text, "hc_count", kStreamsMax, c.streams));
    STRATA_TRY(read(text, "hc_lowrank", kWidthMax, c.stream_rank));
    STRATA_ASSIGN(const double epsilon, text.number("rms_norm_eps"));
    c.epsilon = static_cast<float>(epsilon);
    STRATA_TRY(expect_string(text, "hidden_act", "silu"));
    STRATA_TRY(expect_string(text, "output_gate_type", "sigmoid"));
    return expect_false(text, "attention_bias");
}

Status read_kinds(const Fields& text, model::Config& c) {
    const auto layers = static_cast<std::size_t>(c.layers);
    c.kinds.assign(layers, model::LayerKind::delta_net);
    STRATA_ASSIGN(const auto types, text.strings("layer_types"));
    if (!text.has("layer_types")) {
        STRATA_ASSIGN(const std::int64_t interval,
                      text.integer_or("full_attention_interval", 1, kLayersMax, kIntervalDefault));
        for (auto i = static_cast<std::size_t>(interval) - 1; i < layers;
             i += static_cast<std::size_t>(interval)) {
            c.kinds[i] = model::LayerKind::sparse_attention;
        }
        return Ok{};
    }
    if (types.size() != layers) {
        return STRATA_ERROR(text.name("layer_types"), " has ", types.size(),
                            " entries, wanted num_hidden_layers = ", layers);
    }
    for (std::size_t i = 0; i < layers; ++i) {
        // Releases name the sparse attention in several ways, so only other mechanisms are told
        // from it.
        if (types[i] == "sliding_attention" || types[i] == "chunked_attention") {
            return STRATA_ERROR(text.name("layer_types"), '[', i, "] is \"", types[i],
                                "\", wanted \"linear_attention\" or a name of the model's sparse "
                                "attention such as \"full_attention\"");
        }
        if (types[i] != "linear_attention") c.kinds[i] = model::LayerKind::sparse_attention;
    }
    return Ok{};
}

Status read_delta_net(const Fields& text, model::Config& c) {
    STRATA_TRY(read(text, "linear_num_key_heads", kWidthMax, c.delta_key_heads));
    STRATA_TRY(read(text, "linear_num_value_heads", kWidthMax, c.delta_value_heads));
    STRATA_TRY(read(text, "linear_key_head_dim", kWidthMax, c.delta_head_dim));
    STRATA_ASSIGN(const std::int64_t value_dim,
                  text.integer("linear_value_head_dim", 1, kWidthMax));
    if (value_dim != c.delta_head_dim) {
        return text.wrong("linear_value_head_dim",
                          concat("linear_key_head_dim = ", c.delta_head_dim));
    }
    STRATA_ASSIGN(const std::int64_t kernel, text.integer("linear_conv_kernel_dim", 2, kKernelMax));
    c.delta_kernel = static_cast<int>(kernel);
    return Ok{};
}

// The object that holds a rope key: rope_parameters where it has the key, else the top level.
const Fields& rope_home(const Fields& text, const std::optional<Fields>& inner,
                        std::string_view key) {
    return inner && inner->has(key) ? *inner : text;
}

Status read_rope_sections(const Fields& home, model::Config& c) {
    const std::int64_t pairs = c.rotary_dim / 2;
    if (!home.has("mrope_section")) {
        // The interleaved order gives pair i to the section i mod 3.
        for (std::int64_t i = 0; i < 3; ++i) {
            c.rope_sections.push_back(static_cast<std::int32_t>((pairs + 2 - i) / 3));
        }
    } else {
        STRATA_ASSIGN(const auto sections, home.integers("mrope_section", 0, kWidthMax));
        if (sections.size() < 3 || sections.size() > 4 ||
            std::accumulate(sections.begin(), sections.end(), std::int64_t{0}) != pairs) {
            return home.wrong(
                "mrope_section",
                concat("3 or 4 numbers with the sum of half the rotary width, ", pairs));
        }
        for (const std::int64_t s : sections) {
            c.rope_sections.push_back(static_cast<std::int32_t>(s));
        }
    }
    c.rope_sections.resize(4, 0);
    return Ok{};
}

Status read_rope(const Fields& text, model::Config& c) {
    STRATA_ASSIGN(const auto inner, text.object("rope_parameters"));
    STRATA_ASSIGN(const auto scaling, text.object("rope_scaling"));
    for (const char* key : {"rope_type", "type"}) {
        STRATA_TRY(expect_string(text, key, "default"));
        if (inner) STRATA_TRY(expect_string(*inner, key, "default"));
        if (scaling) STRATA_TRY(expect_string(*scaling, key, "default"));
    }
    STRATA_ASSIGN(c.rope_base, rope_home(text, inner, "rope_theta").number("rope_theta"));
    const char* key = "partial_rotary_factor";
    const Fields& home = rope_home(text, inner, key);
    double factor = kPartialRotaryDefault;
    if (home.has(key)) {
        STRATA_ASSIGN(factor, home.number(key));
    }
    const double width = c.head_dim * factor;
    if (!(width >= 2) || width > c.head_dim || width != std::floor(width) ||
        std::fmod(width, 2) != 0) {
        return home.wrong(key, concat("a share of head_dim = ", c.head_dim,
                                      " that is an even number of at least 2"));
    }
    c.rotary_dim = static_cast<int>(width);
    const bool in_scaling = scaling && scaling->has("mrope_section");
    return read_rope_sections(in_scaling ? *scaling : rope_home(text, inner, "mrope_section"), c);
}

Status read_attention(const Fields& text, model::Config& c) {
    STRATA_TRY(read(text, "num_attention_heads", kWidthMax, c.heads));
    STRATA_TRY(read(text, "num_key_value_heads", kWidthMax, c.kv_heads));
    STRATA_TRY(read(text, "head_dim", kWidthMax, c.head_dim));
    STRATA_TRY(read(text, "indexer_n_heads", kWidthMax, c.index_heads));
    STRATA_TRY(read(text, "indexer_head_dim", kWidthMax, c.index_dim));
    STRATA_TRY(read(text, "indexer_budget", kBudgetMax, c.index_budget));
    STRATA_TRY(read(text, "indexer_compress_ratio", kWidthMax, c.index_ratio));
    STRATA_TRY(text.integer_or("indexer_kv_heads", 1, 1, 1));
    return read_rope(text, c);
}

Status read_experts(const Fields& text, model::Config& c) {
    STRATA_TRY(read(text, "num_experts", kExpertsMax, c.experts));
    STRATA_TRY(read(text, "num_experts_per_tok", kExpertsActiveMax, c.experts_active));
    STRATA_TRY(read(text, "moe_intermediate_size", kWidthMax, c.expert_hidden));
    STRATA_TRY(read(text, "shared_expert_intermediate_size", kWidthMax, c.shared_hidden));
    STRATA_ASSIGN(c.renormalize_experts, text.boolean_or("norm_topk_prob", true));
    return Ok{};
}

Status read_ngram(const Fields& text, HfConfig& config) {
    STRATA_ASSIGN(const auto ids, text.integers("ple_layer_ids", 1, config.model.layers));
    if (ids.empty()) return Ok{};
    if (ids.size() != 1) return text.wrong("ple_layer_ids", "one layer or none");
    model::NgramConfig& ngram = config.model.ngram;
    ngram.layer = ids[0] - 1;
    STRATA_ASSIGN(const std::int64_t size, text.integer("ngram_size", 2, kNgramSizeMax));
    ngram.size = static_cast<int>(size);
    STRATA_TRY(read(text, "heads_per_ngram", kNgramHeadsMax, ngram.heads_per_ngram));
    STRATA_TRY(read(text, "ple_conv_kernel_size", kKernelMax, ngram.kernel));
    if (ngram.heads() > kNgramHeadsMax) {
        return text.wrong("heads_per_ngram", concat("at most ", kNgramHeadsMax, " heads in all"));
    }
    STRATA_ASSIGN(const std::int64_t width, text.integer("ple_embed_dim", 1, kWidthMax));
    if (width % ngram.heads() != 0) {
        return text.wrong("ple_embed_dim", concat("a multiple of the ", ngram.heads(), " heads"));
    }
    ngram.row_width = width / ngram.heads();
    if (config.end_tokens.empty()) {
        return text.wrong("eos_token_id", "the token that ends n-grams");
    }
    ngram.end_token = config.end_tokens[0];
    STRATA_ASSIGN(const std::int64_t seed, text.integer_or("seed", 0, kSeedMax, kSeedDefault));
    config.seed = static_cast<std::uint64_t>(seed);
    if (text.has("ngram_vocab_size_base")) {
        STRATA_ASSIGN(const std::int64_t base,
                      text.integer("ngram_vocab_size_base", 2, kNgramBaseMax));
        config.ngram_base = static_cast<std::uint64_t>(base);
    }
    return Ok{};
}

Status read_mtp(const Fields& text, HfConfig& config) {
    STRATA_ASSIGN(const auto inner, text.object("mtp"));
    const bool outer_count = text.has("mtp_num_hidden_layers");
    config.mtp_stated = outer_count || (inner && inner->has("num_hidden_layers"));
    if (outer_count) {
        STRATA_ASSIGN(config.model.mtp_layers, text.integer("mtp_num_hidden_layers", 0, 1));
    } else if (config.mtp_stated) {
        STRATA_ASSIGN(config.model.mtp_layers, inner->integer("num_hidden_layers", 0, 1));
    }
    STRATA_TRY(expect_false(text, "mtp_use_dedicated_embeddings"));
    if (!inner) return Ok{};
    if (inner->has("mtp_use_hidden_state_from_layer")) {
        return inner->wrong("mtp_use_hidden_state_from_layer", "null (the last layer)");
    }
    if (inner->has("rope_theta")) {
        STRATA_ASSIGN(const double theta, inner->number("rope_theta"));
        if (theta != config.model.rope_base) {
            return inner->wrong("rope_theta", concat("the model's own ", config.model.rope_base));
        }
    }
    STRATA_ASSIGN(const auto types, inner->strings("layer_types"));
    if (std::count(types.begin(), types.end(), "linear_attention") > 0) {
        return inner->wrong("layer_types", "attention in the MTP layer");
    }
    return Ok{};
}

Result<bool> read_tied(const Fields& root, const Fields& text) {
    STRATA_ASSIGN(const bool outer, root.boolean_or("tie_word_embeddings", false));
    STRATA_ASSIGN(const bool inner, text.boolean_or("tie_word_embeddings", outer));
    if (root.has("tie_word_embeddings") && inner != outer) {
        return text.wrong("tie_word_embeddings", "what the outer configuration says");
    }
    return inner;
}

}  // namespace

Result<HfConfig> read_config(const std::string& path) {
    STRATA_ASSIGN(const nlohmann::json document, read_json_object(path));
    const Fields root(document, path);
    STRATA_TRY(check_architecture(root));
    STRATA_ASSIGN(const auto nested, root.object("text_config"));
    const Fields& text = nested ? *nested : root;
    if (nested && nested->has("model_type")) {
        STRATA_TRY(expect_string(text, "model_type", "qwen4_exp_text"));
    }
    HfConfig config;
    model::Config& c = config.model;
    STRATA_TRY(read_sizes(text, c));
    STRATA_TRY(read_kinds(text, c));
    STRATA_TRY(read_delta_net(text, c));
    STRATA_TRY(read_attention(text, c));
    STRATA_TRY(read_experts(text, c));
    STRATA_ASSIGN(config.end_tokens, text.integers("eos_token_id", 0, c.vocabulary - 1));
    STRATA_TRY(read_ngram(text, config));
    STRATA_TRY(read_mtp(text, config));
    STRATA_ASSIGN(config.tied_embeddings, read_tied(root, text));
    for (const Fields* home : {&text, &root}) {
        if (config.image_token || !home->has("image_token_id")) continue;
        STRATA_ASSIGN(config.image_token, home->integer("image_token_id", 0, c.vocabulary - 1));
    }
    if (Status status = model::validate(c); !status.ok()) {
        return STRATA_ERROR(quote(path), ": ", status.error().message);
    }
    return config;
}

}  // namespace strata::convert
