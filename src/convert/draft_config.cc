#include "convert/draft_config.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "convert/fields.h"
#include "model/limits.h"

namespace strata::convert {
namespace {

using model::kContextMax;
using model::kKernelMax;
using model::kLayersMax;
using model::kWidthMax;

// The objects in which a key may stand: the first that has it is asked.
class Homes {
  public:
    Homes(const Fields& root, const std::optional<Fields>& inner)
        : root_(root), inner_(inner ? &*inner : nullptr) {}

    // Error: both have it, with different values.
    Result<const Fields*> of(std::string_view key) const {
        if (inner_ == nullptr || !inner_->has(key)) return &root_;
        if (root_.has(key) && *root_.find(key) != *inner_->find(key)) {
            return root_.wrong(
                key, concat("what ", inner_->name(key), " says, ", excerpt(*inner_->find(key))));
        }
        return inner_;
    }
    template <typename T>
    Status read(std::string_view key, std::int64_t low, std::int64_t high, T& out) const {
        STRATA_ASSIGN(const Fields* home, of(key));
        STRATA_ASSIGN(const std::int64_t value, home->integer(key, low, high));
        out = static_cast<T>(value);
        return Ok{};
    }
    // A number that may be missing but has one value that is computed.
    Status expect(std::string_view key, double wanted) const {
        STRATA_ASSIGN(const Fields* home, of(key));
        if (!home->has(key)) return Ok{};
        STRATA_ASSIGN(const double value, home->number(key));
        return value == wanted ? Status(Ok{}) : home->wrong(key, concat(wanted));
    }
    Status expect_false(std::string_view key) const {
        STRATA_ASSIGN(const Fields* home, of(key));
        STRATA_ASSIGN(const bool value, home->boolean_or(key, false));
        return value ? home->wrong(key, "false") : Status(Ok{});
    }

  private:
    const Fields& root_;
    const Fields* inner_;
};

Status expect_string(const Fields& fields, std::string_view key, std::string_view wanted) {
    if (!fields.has(key)) return Ok{};
    const auto value = fields.string(key);
    if (!value.ok() || *value != wanted) return fields.wrong(key, concat('"', wanted, '"'));
    return Ok{};
}

Status read_sizes(const Fields& root, dflash::Config& c) {
    const Homes homes(root, std::nullopt);
    STRATA_TRY(homes.read("num_hidden_layers", 1, kLayersMax, c.layers));
    STRATA_TRY(homes.read("hidden_size", 1, kWidthMax, c.hidden));
    STRATA_TRY(homes.read("intermediate_size", 1, kWidthMax, c.feed_width));
    STRATA_TRY(homes.read("vocab_size", 1, kWidthMax, c.vocabulary));
    STRATA_TRY(homes.read("max_position_embeddings", 1, kContextMax, c.context));
    STRATA_TRY(homes.read("num_attention_heads", 1, kWidthMax, c.heads));
    STRATA_TRY(homes.read("num_key_value_heads", 1, kWidthMax, c.kv_heads));
    STRATA_TRY(homes.read("head_dim", 1, kWidthMax, c.head_dim));
    STRATA_ASSIGN(const double epsilon, root.number("rms_norm_eps"));
    c.epsilon = static_cast<float>(epsilon);
    STRATA_TRY(expect_string(root, "hidden_act", "silu"));
    return homes.expect_false("attention_bias");
}

Status read_rope(const Fields& root, dflash::Config& c) {
    STRATA_ASSIGN(const auto inner, root.object("rope_parameters"));
    STRATA_ASSIGN(const auto scaling, root.object("rope_scaling"));
    for (const char* key : {"rope_type", "type"}) {
        STRATA_TRY(expect_string(root, key, "default"));
        if (inner) STRATA_TRY(expect_string(*inner, key, "default"));
        if (scaling) STRATA_TRY(expect_string(*scaling, key, "default"));
    }
    const Homes homes(root, inner);
    STRATA_ASSIGN(const Fields* theta, homes.of("rope_theta"));
    STRATA_ASSIGN(c.rope_base, theta->number("rope_theta"));
    const char* key = "partial_rotary_factor";
    STRATA_ASSIGN(const Fields* partial, homes.of(key));
    double factor = 1;
    if (partial->has(key)) {
        STRATA_ASSIGN(factor, partial->number(key));
    }
    const double width = c.head_dim * factor;
    if (!(width >= 2) || width > c.head_dim || width != std::floor(width)) {
        return partial->wrong(key, concat("a whole part of head_dim = ", c.head_dim));
    }
    c.rotary_dim = static_cast<int>(width);
    return Ok{};
}

// A layer slides where its type says so, a window is given and windows are in use.
Status read_windows(const Homes& homes, const Fields& root, dflash::Config& c) {
    const auto layers = static_cast<std::size_t>(c.layers);
    STRATA_ASSIGN(const bool used, root.boolean_or("use_sliding_window", true));
    STRATA_ASSIGN(const Fields* home, homes.of("sliding_window"));
    STRATA_ASSIGN(const std::int64_t window, home->integer_or("sliding_window", 0, kContextMax, 0));
    const bool slides = used && window > 0;
    c.slides.assign(layers, slides ? 1 : 0);
    STRATA_ASSIGN(const auto types, root.strings("layer_types"));
    if (!types.empty() && types.size() != layers) {
        return STRATA_ERROR(root.name("layer_types"), " has ", types.size(),
                            " entries, wanted num_hidden_layers = ", layers);
    }
    for (std::size_t i = 0; i < types.size(); ++i) {
        if (types[i] == "full_attention") {
            c.slides[i] = 0;
        } else if (types[i] != "sliding_attention") {
            return STRATA_ERROR(root.name("layer_types"), '[', i, "] is ", quote(types[i]),
                                ", wanted \"sliding_attention\" or \"full_attention\"");
        }
    }
    const bool any = std::find(c.slides.begin(), c.slides.end(), 1) != c.slides.end();
    c.window = any ? window : 0;
    return Ok{};
}

Status read_target_layers(const Homes& homes, const Fields& root, dflash::Config& c) {
    STRATA_ASSIGN(const std::int64_t layers,
                  root.integer_or("num_target_layers", 1, kLayersMax, kLayersMax));
    STRATA_ASSIGN(const Fields* home, homes.of("target_layer_ids"));
    STRATA_ASSIGN(c.target_layers, home->integers("target_layer_ids", 0, layers - 1));
    if (c.target_layers.empty() ||
        static_cast<std::int64_t>(c.target_layers.size()) > dflash::kTargetLayersMax) {
        return home->wrong("target_layer_ids",
                           concat("1 to ", dflash::kTargetLayersMax, " layers of the target"));
    }
    return Ok{};
}

Status read_block(const Homes& homes, dflash::Config& c) {
    STRATA_TRY(homes.expect_false("is_causal"));
    STRATA_TRY(homes.expect_false("causal"));
    STRATA_TRY(homes.expect("input_embedding_scale", 1));
    STRATA_TRY(homes.expect("output_multiplier", 1));
    STRATA_ASSIGN(const Fields* capped, homes.of("final_logit_softcapping"));
    if (capped->has("final_logit_softcapping")) {
        return capped->wrong("final_logit_softcapping", "null: it is not computed");
    }
    STRATA_TRY(homes.expect("selector_vocab_size", static_cast<double>(c.vocabulary)));
    STRATA_TRY(homes.read("block_size", 2, dflash::kBlockMax, c.block_size));
    STRATA_TRY(homes.read("mask_token_id", 0, c.vocabulary - 1, c.mask_token));
    STRATA_TRY(homes.read("conv_kernel_size", 1, kKernelMax, c.conv_taps));
    STRATA_TRY(homes.read("conv_group_size", 1, kWidthMax, c.conv_group));
    STRATA_TRY(homes.read("selector_rank", 1, kWidthMax, c.selector_rank));
    return homes.read("selector_top_k", 1, dflash::kCandidatesMax, c.candidates);
}

}  // namespace

Result<dflash::Config> read_draft_config(const std::string& path) {
    STRATA_ASSIGN(const nlohmann::json document, read_json_object(path));
    const Fields root(document, path);
    STRATA_ASSIGN(const auto inner, root.object("dflash_config"));
    const Homes homes(root, inner);
    dflash::Config config;
    STRATA_TRY(read_sizes(root, config));
    STRATA_TRY(read_rope(root, config));
    STRATA_TRY(read_windows(homes, root, config));
    STRATA_TRY(read_target_layers(homes, root, config));
    STRATA_TRY(read_block(homes, config));
    if (Status status = dflash::validate(config); !status.ok()) {
        return STRATA_ERROR(quote(path), ": ", status.error().message);
    }
    return config;
}

}  // namespace strata::convert
