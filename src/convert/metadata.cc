#include "convert/metadata.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"

namespace strata::convert {
namespace {

using gguf::Value;

class Keys {
  public:
    explicit Keys(gguf::Writer& writer) : writer_(writer) {}

    void count(std::string_view key, std::int64_t value) {
        set(key, Value::of(static_cast<std::uint32_t>(value)));
    }
    void set(std::string_view key, Value value) {
        writer_.set(concat("qwen4exp.", key), std::move(value));
    }

  private:
    gguf::Writer& writer_;
};

void set_delta_net_keys(const model::Config& c, Keys& keys) {
    keys.count("ssm.conv_kernel", c.delta_kernel);
    keys.count("ssm.state_size", c.delta_head_dim);
    keys.count("ssm.group_count", c.delta_key_heads);
    keys.count("ssm.time_step_rank", c.delta_value_heads);
    keys.count("ssm.inner_size", c.delta_value_width());
}

// The interval n of a model whose every n-th layer attends; 0 where the layers follow no interval.
std::int64_t attention_interval(const model::Config& c) {
    const auto attends = [&](std::size_t i) {
        return c.kinds[i] == model::LayerKind::sparse_attention;
    };
    std::size_t interval = 1;
    while (interval <= c.kinds.size() && !attends(interval - 1)) ++interval;
    for (std::size_t i = 0; i < c.kinds.size(); ++i) {
        if (attends(i) != ((i + 1) % interval == 0)) return 0;
    }
    return interval <= c.kinds.size() ? static_cast<std::int64_t>(interval) : 0;
}

void set_layer_keys(const model::Config& c, Keys& keys) {
    const auto blocks = static_cast<std::size_t>(c.layers + c.mtp_layers);
    std::string recurrent(blocks, '\0');  // the MTP block is none
    std::vector<std::int32_t> ratios(blocks, 0);
    for (std::size_t i = 0; i < c.kinds.size(); ++i) {
        const bool attends = c.kinds[i] == model::LayerKind::sparse_attention;
        recurrent[i] = attends ? '\0' : '\1';
        if (attends) ratios[i] = c.index_ratio;
    }
    const std::int64_t interval = attention_interval(c);
    if (interval > 0) keys.count("full_attention_interval", interval);
    keys.set("attention.recurrent_layers",
             Value::encoded(gguf::ValueType::array, gguf::ValueType::boolean, blocks, recurrent));
    keys.set("attention.compress_ratios", Value::array(ratios));
}

void set_attention_keys(const model::Config& c, Keys& keys) {
    keys.count("attention.head_count", c.heads);
    keys.count("attention.head_count_kv", c.kv_heads);
    keys.count("attention.key_length", c.head_dim);
    keys.count("attention.value_length", c.head_dim);
    keys.set("attention.layer_norm_rms_epsilon", Value::of(c.epsilon));
    keys.set("rope.freq_base", Value::of(static_cast<float>(c.rope_base)));
    keys.count("rope.dimension_count", c.rotary_dim);
    keys.set("rope.dimension_sections", Value::array(c.rope_sections));
    keys.count("attention.indexer.head_count", c.index_heads);
    keys.count("attention.indexer.key_length", c.index_dim);
    keys.count("attention.indexer.top_k", c.index_budget);
}

void set_expert_keys(const model::Config& c, Keys& keys) {
    keys.count("expert_count", c.experts);
    keys.count("expert_used_count", c.experts_active);
    keys.count("expert_feed_forward_length", c.expert_hidden);
    keys.count("expert_shared_feed_forward_length", c.shared_hidden);
    // llama.cpp's key for other architectures; its qwen4exp always renormalizes.
    if (!c.renormalize_experts) keys.set("expert_weights_norm", Value::of(false));
}

void set_ngram_keys(const HfConfig& config, Keys& keys) {
    const model::NgramConfig& ngram = config.model.ngram;
    if (!ngram.present()) return;
    const std::vector<std::int32_t> layers = {static_cast<std::int32_t>(ngram.layer)};
    keys.set("ple.layers", Value::array(layers));
    keys.count("ple.ngram_size", ngram.size);
    keys.count("ple.heads_per_ngram", ngram.heads_per_ngram);
    keys.count("ple.conv_kernel", ngram.kernel);
    keys.count("ple.eos_token_id", ngram.end_token);
    if (config.image_token) keys.count("ple.image_token_id", *config.image_token);
    keys.count("embedding_length_per_layer_input", ngram.row_width);
    keys.set("ple.layer_multipliers", Value::array(ngram.multipliers));
    keys.set("ple.head_offsets", Value::array(ngram.offsets));
    keys.set("ple.head_vocab_sizes", Value::array(ngram.vocabulary));
}

}  // namespace

void set_model_keys(const HfConfig& config, gguf::Writer& writer) {
    const model::Config& c = config.model;
    writer.set("general.architecture", Value::string("qwen4exp"));
    writer.set("general.type", Value::string("model"));
    Keys keys(writer);
    keys.count("block_count", c.layers + c.mtp_layers);
    if (c.mtp_layers > 0) keys.count("nextn_predict_layers", c.mtp_layers);
    keys.count("context_length", c.context);
    keys.count("embedding_length", c.hidden);
    keys.count("vocab_size", c.vocabulary);
    keys.count("hyper_connection.count", c.streams);
    keys.count("hyper_connection.low_rank", c.stream_rank);
    set_layer_keys(c, keys);
    set_attention_keys(c, keys);
    set_delta_net_keys(c, keys);
    set_expert_keys(c, keys);
    set_ngram_keys(config, keys);
}

void leave_out_mtp(const gguf::File& file, std::int64_t layers, gguf::Writer& writer) {
    Keys keys(writer);
    keys.count("block_count", layers);
    keys.count("nextn_predict_layers", 0);
    // Each may have one value, or one a block.
    for (const char* name :
         {"attention.recurrent_layers", "attention.compress_ratios", "attention.head_count",
          "attention.head_count_kv", "feed_forward_length", "expert_feed_forward_length"}) {
        const Value* value = file.find(concat("qwen4exp.", name));
        const std::size_t bytes = value == nullptr ? 0 : gguf::scalar_bytes(value->element_type());
        const auto count = static_cast<std::uint64_t>(layers);
        if (bytes == 0 || value->type() != gguf::ValueType::array || value->count() <= count) {
            continue;
        }
        keys.set(name, Value::encoded(gguf::ValueType::array, value->element_type(), count,
                                      std::string(value->payload().substr(0, bytes * count))));
    }
}

}  // namespace strata::convert
