#include "convert/draft.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "convert/draft_config.h"
#include "convert/fields.h"
#include "convert/hf_config.h"
#include "convert/metadata.h"
#include "convert/output.h"
#include "convert/source.h"
#include "gguf/reader.h"
#include "spec/dflash/tensors.h"

namespace strata::convert {
namespace {

using gguf::Value;

constexpr std::string_view kTokenizerKeys = "tokenizer.";

Status set_target_keys(const ConvertOptions& options, const dflash::Config& config,
                       gguf::Writer& writer) {
    if (options.target.empty()) {
        writer.set("tokenizer.ggml.model", Value::string("none"));
    } else {
        STRATA_ASSIGN(const model::Config target, take_target(options.target, writer));
        if (Status status = dflash::check_target(config, target); !status.ok()) {
            return STRATA_ERROR(quote(options.directory), ": ", status.error().message);
        }
    }
    writer.set("tokenizer.ggml.mask_token_id",
               Value::of(static_cast<std::uint32_t>(config.mask_token)));
    return Ok{};
}

Status check_types(const TypeChoice& types) {
    return refuse_types({{&types.experts_gate, "the experts' gates"},
                         {&types.experts_down, "the experts"},
                         {&types.dense, "dense matrices"},
                         {&types.hyper, "hyper-connections"},
                         {&types.embedding, "the embedding"},
                         {&types.head, "the head"},
                         {&types.table, "the n-gram table"}},
                        "a draft has one for all of its matrices, wanted --type");
}

Result<Recipe> make_recipe(const dflash::TensorSpec& spec, Source& source) {
    std::string name = source.text_name(spec.checkpoint_name);
    if (source.find(name) == nullptr && source.find(name + ".weight") != nullptr) {
        name += ".weight";
    }
    STRATA_ASSIGN(const safetensors::Tensor* tensor,
                  source.want(name, {Shape(spec.shape.rbegin(), spec.shape.rend())}));
    Recipe recipe;
    recipe.spec.name = spec.name;
    recipe.spec.shape = spec.shape;
    recipe.bands = {{{{tensor, 0, recipe.rows()}}, spec.shape[0], 0, spec.shape[0]}};
    return recipe;
}

}  // namespace

void set_draft_keys(const dflash::Config& c, gguf::Writer& writer) {
    writer.set("general.architecture", Value::string("dflash"));
    writer.set("general.type", Value::string("model"));
    const auto set = [&](std::string_view key, Value value) {
        writer.set(concat("dflash.", key), std::move(value));
    };
    const auto count = [&](std::string_view key, std::int64_t value) {
        set(key, Value::of(static_cast<std::uint32_t>(value)));
    };
    count("block_count", c.layers);
    count("context_length", c.context);
    count("embedding_length", c.hidden);
    count("feed_forward_length", c.feed_width);
    count("vocab_size", c.vocabulary);
    count("attention.head_count", c.heads);
    count("attention.head_count_kv", c.kv_heads);
    count("attention.key_length", c.head_dim);
    count("attention.value_length", c.head_dim);
    set("attention.layer_norm_rms_epsilon", Value::of(c.epsilon));
    set("attention.causal", Value::of(false));
    if (c.window > 0) {
        count("attention.sliding_window", c.window);
        const std::string pattern(c.slides.begin(), c.slides.end());
        set("attention.sliding_window_pattern",
            Value::encoded(gguf::ValueType::array, gguf::ValueType::boolean, pattern.size(),
                           pattern));
    }
    set("rope.freq_base", Value::of(static_cast<float>(c.rope_base)));
    if (c.rotary_dim != c.head_dim) count("rope.dimension_count", c.rotary_dim);
    // The target's positions have several parts, of which a draft turns by the first alone.
    set("rope.dimension_sections",
        Value::array(std::vector<std::int32_t>{c.rotary_dim / 2, 0, 0, 0}));
    count("block_size", c.block_size);
    std::vector<std::int32_t> boundaries;
    for (const std::int64_t layer : c.target_layers) {
        boundaries.push_back(static_cast<std::int32_t>(layer + 1));
    }
    set("target_layers", Value::array(boundaries));
    count("conv_kernel_size", c.conv_taps);
    count("conv_group_size", c.conv_group);
    count("selector_rank", c.selector_rank);
    count("selector_top_k", c.candidates);
}

Result<quant::Type> draft_type(quant::Type type, const dflash::TensorSpec& spec) {
    if (spec.kind == dflash::TensorKind::numbers) return quant::Type::f32;
    if (spec.kind == dflash::TensorKind::kept) return quant::Type::bf16;
    const quant::TypeInfo& info = quant::info(type);
    if (info.encode == nullptr || spec.shape[0] % static_cast<std::uint64_t>(info.block) != 0) {
        return STRATA_ERROR("tensor ", quote(spec.name), " has rows of ", spec.shape[0],
                            " values, and ", info.name, " wants a multiple of ", info.block,
                            "; choose another type for the draft");
    }
    return type;
}

Result<model::Config> take_target(const std::string& target, gguf::Writer& writer) {
    std::error_code ignored;
    if (std::filesystem::exists(target + "/config.json", ignored)) {
        STRATA_ASSIGN(const HfConfig config, read_config(target + "/config.json"));
        STRATA_TRY(set_tokenizer_keys(target, config, writer));
        return config.model;
    }
    STRATA_ASSIGN(const gguf::File file, gguf::File::open(target));
    for (const auto& [key, value] : file.metadata()) {
        if (key.starts_with(kTokenizerKeys)) writer.set(key, value);
    }
    return model::config_from_gguf(file);
}

Result<bool> is_draft(const std::string& path) {
    STRATA_ASSIGN(const nlohmann::json document, read_json_object(path));
    STRATA_ASSIGN(const auto names, Fields(document, path).strings("architectures"));
    return std::find(names.begin(), names.end(), kDraftArchitecture) != names.end();
}

Status convert_draft(const ConvertOptions& options) {
    STRATA_TRY(check_types(options.types));
    STRATA_ASSIGN(const dflash::Config config,
                  read_draft_config(options.directory + "/config.json"));
    STRATA_ASSIGN(const auto checkpoint, safetensors::Checkpoint::open(options.directory));
    STRATA_ASSIGN(Source source, Source::create_draft(checkpoint));
    gguf::Writer writer;
    set_draft_keys(config, writer);
    set_general_keys(options, writer);
    STRATA_TRY(set_target_keys(options, config, writer));
    std::vector<Output> outputs;
    for (const dflash::TensorSpec& spec : dflash::tensor_list(config)) {
        STRATA_ASSIGN(Recipe recipe, make_recipe(spec, source));
        STRATA_ASSIGN(const quant::Type type, draft_type(options.types.type, spec));
        STRATA_ASSIGN(Output output, declare(std::move(recipe), type, writer));
        outputs.push_back(std::move(output));
    }
    STRATA_TRY(source.check_all_used());
    return write_outputs(options, outputs, writer);
}

}  // namespace strata::convert
