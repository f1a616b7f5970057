#include "convert/recipes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/text.h"
#include "convert/ngram_hash.h"

namespace strata::convert {
namespace {

using model::TensorSpec;
using safetensors::Tensor;

constexpr std::string_view kHashName = "ple.ple_embedding.";
constexpr std::string_view kTableName = "ple.ple_embedding.ngram_embedding.";

enum class Make {
    plain,              // the same values
    gamma,              // 1 + w
    value_rows,         // rows in blocks of a value head, heads in GGUF's order
    value_rows_tail,    // the same after 2 key_heads * head_dim rows that stay
    value_scalar_rows,  // one row a value head
    value_entries,      // one entry a value head
    decay,              // the same, -exp(x)
    value_columns,      // columns in blocks of a value head
    index_query,        // the upper rows of a joint matrix
    index_key,          // its lower rows
    vector,             // a matrix of one row
    expert_gate,
    expert_up,
    expert_down,
};

struct Rule {
    std::string_view gguf;  // after "blk.N." or whole
    std::string_view hf;    // after "layers.N." or the text model's prefix
    Make make = Make::plain;
};

constexpr std::array kBlockRules = {
    Rule{"hc_attn_norm.weight", "attn_hyper_connection.hc_norm.weight", Make::gamma},
    Rule{"hc_attn_down.weight", "attn_hyper_connection.input_mix_weight_down.weight"},
    Rule{"hc_attn_up.weight", "attn_hyper_connection.input_mix_weight_up.weight"},
    Rule{"hc_attn_inject.weight", "attn_hyper_connection.block_inject_weight.weight"},
    Rule{"hc_ffn_norm.weight", "mlp_hyper_connection.hc_norm.weight", Make::gamma},
    Rule{"hc_ffn_down.weight", "mlp_hyper_connection.input_mix_weight_down.weight"},
    Rule{"hc_ffn_up.weight", "mlp_hyper_connection.input_mix_weight_up.weight"},
    Rule{"hc_ffn_inject.weight", "mlp_hyper_connection.block_inject_weight.weight"},
    Rule{"attn_qkv.weight", "linear_attn.in_proj_qkv.weight", Make::value_rows_tail},
    Rule{"attn_gate.weight", "linear_attn.in_proj_z.weight", Make::value_rows},
    Rule{"ssm_conv1d.weight", "linear_attn.conv1d.weight", Make::value_rows_tail},
    Rule{"ssm_dt.bias", "linear_attn.dt_bias", Make::value_entries},
    Rule{"ssm_a", "linear_attn.A_log", Make::decay},
    Rule{"ssm_beta.weight", "linear_attn.in_proj_b.weight", Make::value_scalar_rows},
    Rule{"ssm_alpha.weight", "linear_attn.in_proj_a.weight", Make::value_scalar_rows},
    Rule{"ssm_norm.weight", "linear_attn.norm.weight"},
    Rule{"ssm_out.weight", "linear_attn.out_proj.weight", Make::value_columns},
    Rule{"attn_q.weight", "self_attn.q_proj.weight"},
    Rule{"attn_k.weight", "self_attn.k_proj.weight"},
    Rule{"attn_v.weight", "self_attn.v_proj.weight"},
    Rule{"attn_output.weight", "self_attn.o_proj.weight"},
    Rule{"attn_q_norm.weight", "self_attn.q_norm.weight", Make::gamma},
    Rule{"attn_k_norm.weight", "self_attn.k_norm.weight", Make::gamma},
    Rule{"indexer.q_proj.weight", "self_attn.indexer.index_qk_proj.weight", Make::index_query},
    Rule{"indexer.k_proj.weight", "self_attn.indexer.index_qk_proj.weight", Make::index_key},
    Rule{"indexer.q_norm.weight", "self_attn.indexer.q_layernorm.weight", Make::gamma},
    Rule{"indexer.k_norm.weight", "self_attn.indexer.k_layernorm.weight", Make::gamma},
    Rule{"ple_key.weight", "ple.key_proj.weight"},
    Rule{"ple_value.weight", "ple.value_proj.weight"},
    Rule{"ple_norm_key.weight", "ple.norm_key.weight", Make::gamma},
    Rule{"ple_norm_query.weight", "ple.norm_query.weight", Make::gamma},
    Rule{"ple_norm_conv.weight", "ple.norm_conv.weight", Make::gamma},
    Rule{"ple_conv1d.weight", "ple.conv1d.weight"},
    Rule{"ffn_gate_inp.weight", "mlp.gate.weight"},
    Rule{"ffn_gate_exps.weight", "mlp.experts", Make::expert_gate},
    Rule{"ffn_up_exps.weight", "mlp.experts", Make::expert_up},
    Rule{"ffn_down_exps.weight", "mlp.experts", Make::expert_down},
    Rule{"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", Make::vector},
    Rule{"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"},
    Rule{"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"},
    Rule{"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"},
};

constexpr std::array kMtpRules = {
    Rule{"nextn.enorm.weight", "pre_fc_norm_embedding.weight", Make::gamma},
    Rule{"nextn.hnorm.weight", "pre_fc_norm_hidden.weight", Make::gamma},
    Rule{"nextn.hc_head_norm.weight", "hyper_connection_mixer.hc_norm.weight", Make::gamma},
    Rule{"nextn.hc_head_down.weight", "hyper_connection_mixer.input_mix_weight_down.weight"},
    Rule{"nextn.hc_head_up.weight", "hyper_connection_mixer.input_mix_weight_up.weight"},
};

constexpr std::array kGlobalRules = {
    Rule{"token_embd.weight", "embed_tokens.weight"},
    Rule{"output_hc_norm.weight", "hyper_connection_mixer.hc_norm.weight", Make::gamma},
    Rule{"output_hc_down.weight", "hyper_connection_mixer.input_mix_weight_down.weight"},
    Rule{"output_hc_up.weight", "hyper_connection_mixer.input_mix_weight_up.weight"},
};

template <typename Rules>
const Rule* find_rule(const Rules& rules, std::string_view gguf) {
    const auto found = std::find_if(rules.begin(), rules.end(),
                                    [&](const Rule& rule) { return rule.gguf == gguf; });
    return found == rules.end() ? nullptr : &*found;
}

// PyTorch's order of a GGUF shape.
Shape reversed(const Shape& shape) { return {shape.rbegin(), shape.rend()}; }

class Builder {
  public:
    Builder(const HfConfig& config, Source& source) : c_(config.model), source_(source) {}

    Result<Recipe> build(const TensorSpec& spec) const;

  private:
    Result<Recipe> from_rule(const Rule& rule, const TensorSpec& spec,
                             const std::string& name) const;
    Result<Recipe> head(const TensorSpec& spec) const;
    Result<Recipe> fusion(const TensorSpec& spec) const;
    Result<Recipe> table(const TensorSpec& spec) const;
    Result<Recipe> experts(const TensorSpec& spec, const std::string& name, Make make) const;
    Result<Recipe> index_rows(const TensorSpec& spec, const std::string& name, bool key) const;
    Status value_heads(const Tensor* tensor, Make make, Recipe& recipe) const;
    std::vector<RowRange> value_rows(const Tensor* tensor, std::uint64_t first,
                                     std::uint64_t block) const;

    // The checkpoint's number of GGUF value head `head` (model.md 3.3, 7).
    std::uint64_t source_head(std::uint64_t head) const {
        const auto keys = static_cast<std::uint64_t>(c_.delta_key_heads);
        return head % keys * (value_head_count() / keys) + head / keys;
    }
    std::uint64_t value_head_count() const {
        return static_cast<std::uint64_t>(c_.delta_value_heads);
    }
    std::uint64_t head_dim() const { return static_cast<std::uint64_t>(c_.delta_head_dim); }

    const model::Config& c_;
    Source& source_;
};

Recipe whole(const TensorSpec& spec, std::vector<RowRange> ranges) {
    return Recipe{spec, {Band{std::move(ranges), spec.shape[0], 0, spec.shape[0]}}, ValueMap::copy};
}

Recipe whole(const TensorSpec& spec, const Tensor* tensor) {
    Recipe recipe = whole(spec, std::vector<RowRange>{});
    recipe.bands[0].ranges = {{tensor, 0, recipe.rows()}};
    return recipe;
}

// A convolution stands as [channels, 1, taps] or squeezed, a vector also as a matrix of one row.
std::vector<Shape> source_shapes(const TensorSpec& spec, Make make) {
    const Shape shape = reversed(spec.shape);
    if (make == Make::vector) return {{1, shape[0]}, shape};
    if (spec.name.ends_with("conv1d.weight")) return {{shape[0], 1, shape[1]}, shape};
    return {shape};
}

std::vector<RowRange> Builder::value_rows(const Tensor* tensor, std::uint64_t first,
                                          std::uint64_t block) const {
    std::vector<RowRange> ranges;
    if (first > 0) ranges.push_back({tensor, 0, first});
    for (std::uint64_t head = 0; head < value_head_count(); ++head) {
        ranges.push_back({tensor, first + source_head(head) * block, block});
    }
    return ranges;
}

Status Builder::value_heads(const Tensor* tensor, Make make, Recipe& recipe) const {
    const std::uint64_t keys = 2 * static_cast<std::uint64_t>(c_.delta_key_heads) * head_dim();
    switch (make) {
        case Make::value_rows:
            recipe.bands[0].ranges = value_rows(tensor, 0, head_dim());
            return Ok{};
        case Make::value_rows_tail:
            recipe.bands[0].ranges = value_rows(tensor, keys, head_dim());
            return Ok{};
        case Make::value_scalar_rows:
            recipe.bands[0].ranges = value_rows(tensor, 0, 1);
            return Ok{};
        default:
            break;
    }
    const std::uint64_t block = make == Make::value_columns ? head_dim() : 1;
    const RowRange all{tensor, 0, recipe.rows()};
    recipe.bands.clear();
    for (std::uint64_t head = 0; head < value_head_count(); ++head) {
        recipe.bands.push_back({{all}, recipe.width(), source_head(head) * block, block});
    }
    return Ok{};
}

Result<Recipe> Builder::index_rows(const TensorSpec& spec, const std::string& name,
                                   bool key) const {
    const std::uint64_t dim = static_cast<std::uint64_t>(c_.index_dim);
    const std::uint64_t queries = static_cast<std::uint64_t>(c_.index_heads) * dim;
    STRATA_ASSIGN(const Tensor* tensor,
                  source_.want(name, {{queries + dim, static_cast<std::uint64_t>(c_.hidden)}}));
    return whole(spec, {{tensor, key ? queries : 0, key ? dim : queries}});
}

Result<Recipe> Builder::experts(const TensorSpec& spec, const std::string& name, Make make) const {
    const bool down = make == Make::expert_down;
    const std::uint64_t rows = spec.shape[1];
    const std::uint64_t count = spec.shape[2];
    const std::string stem = concat(name, down ? ".down_proj" : ".gate_up_proj");
    for (const std::string& fused : {stem, stem + ".weight"}) {
        if (source_.find(fused) == nullptr) continue;
        const std::uint64_t stored = down ? rows : 2 * rows;
        STRATA_ASSIGN(const Tensor* tensor, source_.want(fused, {{count, stored, spec.shape[0]}}));
        std::vector<RowRange> ranges;
        for (std::uint64_t e = 0; e < count; ++e) {
            ranges.push_back({tensor, e * stored + (make == Make::expert_up ? rows : 0), rows});
        }
        return whole(spec, std::move(ranges));
    }
    const std::string_view part = down                        ? "down_proj"
                                  : make == Make::expert_gate ? "gate_proj"
                                                              : "up_proj";
    std::vector<RowRange> ranges;
    for (std::uint64_t e = 0; e < count; ++e) {
        STRATA_ASSIGN(const Tensor* tensor, source_.want(concat(name, '.', e, '.', part, ".weight"),
                                                         {{rows, spec.shape[0]}}));
        ranges.push_back({tensor, 0, rows});
    }
    return whole(spec, std::move(ranges));
}

Result<Recipe> Builder::from_rule(const Rule& rule, const TensorSpec& spec,
                                  const std::string& name) const {
    switch (rule.make) {
        case Make::expert_gate:
        case Make::expert_up:
        case Make::expert_down:
            return experts(spec, name, rule.make);
        case Make::index_query:
        case Make::index_key:
            return index_rows(spec, name, rule.make == Make::index_key);
        default:
            break;
    }
    STRATA_ASSIGN(const Tensor* tensor, source_.want(name, source_shapes(spec, rule.make)));
    Recipe recipe = whole(spec, tensor);
    if (rule.make == Make::gamma) recipe.map = ValueMap::plus_one;
    if (rule.make == Make::decay) recipe.map = ValueMap::minus_exp;
    if (rule.make != Make::plain && rule.make != Make::gamma && rule.make != Make::vector) {
        STRATA_TRY(value_heads(tensor, rule.make, recipe));
    }
    return recipe;
}

Result<Recipe> Builder::head(const TensorSpec& spec) const {
    STRATA_ASSIGN(const Tensor* tensor, source_.want(source_.head_name(), {reversed(spec.shape)}));
    return whole(spec, tensor);
}

// [fc_embedding | fc_hidden] along the input.
Result<Recipe> Builder::fusion(const TensorSpec& spec) const {
    const std::uint64_t hidden = spec.shape[1];
    Recipe recipe{spec, {}, ValueMap::copy};
    for (const char* name : {"fc_embedding.weight", "fc_hidden.weight"}) {
        STRATA_ASSIGN(const Tensor* tensor,
                      source_.want(source_.mtp_name(name), {{hidden, hidden}}));
        recipe.bands.push_back({{{tensor, 0, hidden}}, hidden, 0, hidden});
    }
    return recipe;
}

// The shards one below the other; how many rows are padding is theirs to say.
Result<Recipe> Builder::table(const TensorSpec& spec) const {
    const std::string stem = source_.text_name(concat("layers.", c_.ngram.layer, '.', kTableName));
    const std::size_t shards = source_.count(stem + "shard_");
    std::vector<RowRange> ranges;
    std::uint64_t rows = 0;
    for (std::size_t i = 0; i < std::max<std::size_t>(shards, 1); ++i) {
        const std::string name =
            shards == 0 ? stem + "weight" : concat(stem, "shard_", i, ".weight");
        const Tensor* found = source_.find(name);
        const bool matrix = found != nullptr && found->shape.size() == 2;
        const std::uint64_t here = matrix ? found->shape[0] : spec.shape[1];
        STRATA_ASSIGN(const Tensor* tensor, source_.want(name, {{here, spec.shape[0]}}));
        ranges.push_back({tensor, 0, here});
        rows += here;
    }
    if (rows < spec.shape[1]) {
        return STRATA_ERROR("the n-gram table '", stem, "*' has ", rows, " rows in ", ranges.size(),
                            " tensors, wanted at least ", spec.shape[1], " for its hash");
    }
    TensorSpec padded = spec;
    padded.shape[1] = rows;
    return whole(padded, std::move(ranges));
}

Result<Recipe> Builder::build(const TensorSpec& spec) const {
    if (spec.tensor_class == model::TensorClass::head) return head(spec);
    if (spec.tensor_class == model::TensorClass::ngram_table) return table(spec);
    if (spec.block < 0) {
        if (const Rule* rule = find_rule(kGlobalRules, spec.name)) {
            return from_rule(*rule, spec, source_.text_name(rule->hf));
        }
        return STRATA_ERROR("no tensor of a checkpoint is known to give ", quote(spec.name));
    }
    const std::string suffix = spec.name.substr(model::block_name(spec.block, "").size());
    if (spec.mtp && suffix == "nextn.eh_proj.weight") return fusion(spec);
    if (const Rule* rule = find_rule(kMtpRules, suffix); rule != nullptr && spec.mtp) {
        return from_rule(*rule, spec, source_.mtp_name(rule->hf));
    }
    const Rule* rule = find_rule(kBlockRules, suffix);
    if (rule == nullptr) {
        return STRATA_ERROR("no tensor of a checkpoint is known to give ", quote(spec.name));
    }
    const std::string name =
        spec.mtp ? source_.mtp_name(concat("layers.", spec.block - c_.layers, '.', rule->hf))
                 : source_.text_name(concat("layers.", spec.block, '.', rule->hf));
    return from_rule(*rule, spec, name);
}

}  // namespace

Status complete_hash(HfConfig& config, Source& source) {
    model::NgramConfig& ngram = config.model.ngram;
    if (!ngram.present()) return Ok{};
    const std::string stem = source.text_name(concat("layers.", ngram.layer, '.', kHashName));
    const std::string multipliers = stem + "layer_multipliers";
    const std::string sizes = stem + "ngram_heads_vocab_sizes";
    const std::string offsets = stem + "ngram_heads_offsets";
    if (source.find(multipliers) != nullptr || source.find(sizes) != nullptr ||
        source.find(offsets) != nullptr) {
        const auto heads = static_cast<std::uint64_t>(ngram.heads());
        STRATA_ASSIGN(ngram.multipliers,
                      source.want_ints(multipliers, static_cast<std::uint64_t>(ngram.size)));
        STRATA_ASSIGN(ngram.vocabulary, source.want_ints(sizes, heads));
        STRATA_ASSIGN(ngram.offsets, source.want_ints(offsets, heads));
        return model::validate(config.model);
    }
    if (!config.ngram_base) {
        return STRATA_ERROR("there is no tensor ", quote(multipliers),
                            " and config.json has no ngram_vocab_size_base to derive it from");
    }
    STRATA_TRY(derive_hash(static_cast<std::uint64_t>(config.model.vocabulary), *config.ngram_base,
                           config.seed, ngram));
    return model::validate(config.model);
}

Result<std::vector<Recipe>> make_recipes(const HfConfig& config, Source& source) {
    const Builder builder(config, source);
    std::vector<Recipe> recipes;
    for (const TensorSpec& spec : model::tensor_list(config.model)) {
        if (source.mtp_alone() && !spec.mtp) continue;
        if (spec.tensor_class == model::TensorClass::head && config.tied_embeddings) {
            source.leave_out(source.head_name());
            continue;
        }
        STRATA_ASSIGN(Recipe recipe, builder.build(spec));
        recipes.push_back(std::move(recipe));
    }
    if (config.model.mtp_layers == 0 && source.has_mtp()) source.leave_out(source.mtp_name(""));
    STRATA_TRY(source.check_all_used());
    return recipes;
}

}  // namespace strata::convert
