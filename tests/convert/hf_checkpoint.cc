#include "tests/convert/hf_checkpoint.h"

#include <cstring>
#include <random>

#include "base/text.h"
#include "tests/support/temp_dir.h"

namespace strata::test {
namespace {

using nlohmann::ordered_json;
using Shape = std::vector<std::uint64_t>;

std::size_t element_count(const Shape& shape) {
    std::size_t count = 1;
    for (const std::uint64_t n : shape) count *= n;
    return count;
}

template <typename T>
std::string raw(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

HfTensor ints(const std::vector<std::int64_t>& values) {
    return {"I64", {values.size()}, raw(values)};
}

// Fills a checkpoint with the tensors of model.md 3.1.
class Generator {
  public:
    explicit Generator(const ordered_json& config) : c_(config) { out_.config = config; }
    HfCheckpoint run();

  private:
    std::uint64_t size(const char* key) const { return c_.at(key).get<std::uint64_t>(); }
    void add(const std::string& name, const Shape& shape);
    void mixer(const std::string& prefix);
    void delta_net(const std::string& prefix);
    void attention(const std::string& prefix);
    void experts(const std::string& prefix);
    void layer(const std::string& prefix, bool linear);
    void ngram(const std::string& prefix);

    const ordered_json& c_;
    HfCheckpoint out_;
    std::mt19937 random_{7};
};

void Generator::add(const std::string& name, const Shape& shape) {
    std::vector<float> values(element_count(shape));
    std::uniform_real_distribution<float> any(-2, 2);
    for (float& v : values) v = any(random_);
    out_.tensors[name] = bf16_tensor(shape, values);
}

void Generator::mixer(const std::string& prefix) {
    const std::uint64_t width = size("hc_count") * size("hidden_size");
    add(prefix + "hc_norm.weight", {width});
    add(prefix + "input_mix_weight_down.weight", {size("hc_lowrank"), width});
    add(prefix + "input_mix_weight_up.weight", {width, size("hc_lowrank")});
}

void Generator::delta_net(const std::string& prefix) {
    const std::uint64_t hidden = size("hidden_size");
    const std::uint64_t heads = size("linear_num_value_heads");
    const std::uint64_t dim = size("linear_value_head_dim");
    const std::uint64_t channels = (2 * size("linear_num_key_heads") + heads) * dim;
    add(prefix + "in_proj_qkv.weight", {channels, hidden});
    add(prefix + "in_proj_z.weight", {heads * dim, hidden});
    add(prefix + "in_proj_b.weight", {heads, hidden});
    add(prefix + "in_proj_a.weight", {heads, hidden});
    add(prefix + "conv1d.weight", {channels, 1, size("linear_conv_kernel_dim")});
    add(prefix + "A_log", {heads});
    add(prefix + "dt_bias", {heads});
    add(prefix + "norm.weight", {dim});
    add(prefix + "out_proj.weight", {hidden, heads * dim});
}

void Generator::attention(const std::string& prefix) {
    const std::uint64_t hidden = size("hidden_size");
    const std::uint64_t dim = size("head_dim");
    const std::uint64_t queries = size("num_attention_heads") * dim;
    const std::uint64_t keys = size("num_key_value_heads") * dim;
    const std::uint64_t index = size("indexer_head_dim");
    add(prefix + "q_proj.weight", {2 * queries, hidden});
    add(prefix + "k_proj.weight", {keys, hidden});
    add(prefix + "v_proj.weight", {keys, hidden});
    add(prefix + "o_proj.weight", {hidden, queries});
    add(prefix + "q_norm.weight", {dim});
    add(prefix + "k_norm.weight", {dim});
    add(prefix + "indexer.index_qk_proj.weight", {(size("indexer_n_heads") + 1) * index, hidden});
    add(prefix + "indexer.q_layernorm.weight", {index});
    add(prefix + "indexer.k_layernorm.weight", {index});
}

void Generator::experts(const std::string& prefix) {
    const std::uint64_t hidden = size("hidden_size");
    const std::uint64_t inner = size("moe_intermediate_size");
    const std::uint64_t shared = size("shared_expert_intermediate_size");
    add(prefix + "gate.weight", {size("num_experts"), hidden});
    for (std::uint64_t e = 0; e < size("num_experts"); ++e) {
        const std::string expert = concat(prefix, "experts.", e, '.');
        add(expert + "gate_proj.weight", {inner, hidden});
        add(expert + "up_proj.weight", {inner, hidden});
        add(expert + "down_proj.weight", {hidden, inner});
    }
    add(prefix + "shared_expert.gate_proj.weight", {shared, hidden});
    add(prefix + "shared_expert.up_proj.weight", {shared, hidden});
    add(prefix + "shared_expert.down_proj.weight", {hidden, shared});
    add(prefix + "shared_expert_gate.weight", {1, hidden});
}

void Generator::layer(const std::string& prefix, bool linear) {
    const std::uint64_t width = size("hc_count") * size("hidden_size");
    for (const char* part : {"attn_hyper_connection.", "mlp_hyper_connection."}) {
        mixer(prefix + part);
        add(prefix + part + "block_inject_weight.weight", {size("hc_count"), width});
    }
    linear ? delta_net(prefix + "linear_attn.") : attention(prefix + "self_attn.");
    experts(prefix + "mlp.");
}

void Generator::ngram(const std::string& prefix) {
    const std::uint64_t hidden = size("hidden_size");
    const std::uint64_t width = size("hc_count") * hidden;
    const std::uint64_t heads = size("heads_per_ngram") * (size("ngram_size") - 1);
    const std::uint64_t embed = size("ple_embed_dim");
    add(prefix + "key_proj.weight", {width, embed});
    add(prefix + "value_proj.weight", {hidden, embed});
    for (const char* norm : {"norm_key", "norm_query", "norm_conv"}) {
        add(prefix + norm + ".weight", {width});
    }
    add(prefix + "conv1d.weight", {width, 1, size("ple_conv_kernel_size")});
    const std::string hash = prefix + "ple_embedding.";
    std::vector<std::int64_t> multipliers;
    for (std::uint64_t i = 0; i < size("ngram_size"); ++i) {
        multipliers.push_back(static_cast<std::int64_t>(1000001 * (i + 1)));
    }
    // Any sizes serve that stay apart; the rows of two shards are more than the hash needs.
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> offsets;
    std::int64_t rows = 0;
    for (std::uint64_t h = 0; h < heads; ++h) {
        sizes.push_back(static_cast<std::int64_t>(11 + h));
        offsets.push_back(rows);
        rows += sizes.back();
    }
    out_.tensors[hash + "layer_multipliers"] = ints(multipliers);
    out_.tensors[hash + "ngram_heads_vocab_sizes"] = ints(sizes);
    out_.tensors[hash + "ngram_heads_offsets"] = ints(offsets);
    const auto half = static_cast<std::uint64_t>(rows / 2 + 1);
    add(hash + "ngram_embedding.shard_0.weight", {half, embed / heads});
    add(hash + "ngram_embedding.shard_1.weight", {half, embed / heads});
}

HfCheckpoint Generator::run() {
    const std::uint64_t hidden = size("hidden_size");
    add("model.embed_tokens.weight", {size("vocab_size"), hidden});
    add("lm_head.weight", {size("vocab_size"), hidden});
    mixer("model.hyper_connection_mixer.");
    for (std::uint64_t i = 0; i < size("num_hidden_layers"); ++i) {
        const std::string prefix = concat("model.layers.", i, '.');
        layer(prefix, c_.at("layer_types").at(i) == "linear_attention");
        if (c_.at("ple_layer_ids").at(0) == i + 1) ngram(prefix + "ple.");
    }
    if (size("mtp_num_hidden_layers") == 0) return out_;
    add("mtp.fc_embedding.weight", {hidden, hidden});
    add("mtp.fc_hidden.weight", {hidden, hidden});
    add("mtp.pre_fc_norm_embedding.weight", {hidden});
    add("mtp.pre_fc_norm_hidden.weight", {size("hc_count") * hidden});
    mixer("mtp.hyper_connection_mixer.");
    layer("mtp.layers.0.", false);
    return out_;
}

// One after another along the first dimension; `stacked` adds a dimension in front.
HfTensor joined(const std::vector<const HfTensor*>& parts, bool stacked) {
    HfTensor out{parts[0]->dtype, parts[0]->shape, ""};
    std::uint64_t rows = 0;
    for (const HfTensor* part : parts) {
        rows += part->shape[0];
        out.bytes += part->bytes;
    }
    out.shape[0] = rows;
    if (stacked) {
        out.shape = parts[0]->shape;
        out.shape.insert(out.shape.begin(), parts.size());
    }
    return out;
}

void fuse_experts(HfCheckpoint& checkpoint, const std::string& prefix, std::uint64_t count) {
    std::vector<HfTensor> gate_up;
    std::vector<const HfTensor*> inputs;
    std::vector<const HfTensor*> outputs;
    for (std::uint64_t e = 0; e < count; ++e) {
        const std::string expert = concat(prefix, "experts.", e, '.');
        gate_up.push_back(joined({&checkpoint.at(expert + "gate_proj.weight"),
                                  &checkpoint.at(expert + "up_proj.weight")},
                                 false));
        outputs.push_back(&checkpoint.at(expert + "down_proj.weight"));
    }
    for (const HfTensor& tensor : gate_up) inputs.push_back(&tensor);
    checkpoint.tensors[prefix + "experts.gate_up_proj"] = joined(inputs, true);
    checkpoint.tensors[prefix + "experts.down_proj"] = joined(outputs, true);
    std::erase_if(checkpoint.tensors, [&](const auto& entry) {
        return entry.first.starts_with(prefix + "experts.") && entry.first.ends_with(".weight");
    });
}

}  // namespace

std::vector<float> HfTensor::floats() const {
    std::vector<float> values(element_count(shape));
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (dtype == "F32") std::memcpy(&values[i], bytes.data() + 4 * i, 4);
        if (dtype != "BF16") continue;
        std::uint16_t half = 0;
        std::memcpy(&half, bytes.data() + 2 * i, 2);
        const std::uint32_t bits = std::uint32_t{half} << 16;
        std::memcpy(&values[i], &bits, 4);
    }
    return values;
}

HfTensor bf16_tensor(Shape shape, const std::vector<float>& values) {
    std::vector<std::uint16_t> halves;
    for (const float value : values) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, 4);
        halves.push_back(static_cast<std::uint16_t>(bits >> 16));
    }
    return {"BF16", std::move(shape), raw(halves)};
}

HfTensor f32_tensor(Shape shape, const std::vector<float>& values) {
    return {"F32", std::move(shape), raw(values)};
}

HfCheckpoint HfCheckpoint::load(const std::string& directory) {
    HfCheckpoint out;
    out.config = ordered_json::parse(read_file(directory + "/config.json"));
    const std::string file = read_file(directory + "/model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    const auto header = ordered_json::parse(file.substr(8, length));
    for (const auto& [name, entry] : header.items()) {
        if (name == "__metadata__") continue;
        const auto begin = entry["data_offsets"][0].get<std::size_t>();
        const auto end = entry["data_offsets"][1].get<std::size_t>();
        out.tensors[name] = {entry["dtype"], entry["shape"],
                             file.substr(8 + length + begin, end - begin)};
    }
    return out;
}

HfCheckpoint HfCheckpoint::random(const ordered_json& config) { return Generator(config).run(); }

void HfCheckpoint::write(const std::string& directory, int files) const {
    std::filesystem::create_directories(directory);
    write_file(directory + "/config.json", config.dump(1));
    std::vector<ordered_json> headers(static_cast<std::size_t>(files), ordered_json::object());
    std::vector<std::string> data(headers.size());
    ordered_json map = ordered_json::object();
    const auto file_name = [&](std::size_t i) {
        return files == 1 ? std::string("model.safetensors")
                          : concat("model-0000", i + 1, "-of-0000", files, ".safetensors");
    };
    std::size_t next = 0;
    for (const auto& [name, tensor] : tensors) {
        const std::size_t i = next++ % headers.size();
        const std::size_t begin = data[i].size();
        data[i] += tensor.bytes;
        headers[i][name] = {{"dtype", tensor.dtype},
                            {"shape", tensor.shape},
                            {"data_offsets", {begin, data[i].size()}}};
        map[name] = file_name(i);
    }
    for (std::size_t i = 0; i < headers.size(); ++i) {
        const std::string header = headers[i].dump();
        const std::uint64_t length = header.size();
        const std::string prefix(reinterpret_cast<const char*>(&length), 8);
        write_file(directory + "/" + file_name(i), prefix + header + data[i]);
    }
    if (files == 1) return;
    write_file(directory + "/model.safetensors.index.json",
               ordered_json{{"weight_map", map}}.dump());
}

void HfCheckpoint::rename_prefix(const std::string& from, const std::string& to) {
    std::map<std::string, HfTensor> renamed;
    for (auto& [name, tensor] : tensors) {
        const bool matches = name.starts_with(from);
        renamed[matches ? to + name.substr(from.size()) : name] = std::move(tensor);
    }
    tensors = std::move(renamed);
}

HfCheckpoint HfCheckpoint::other_layout() const {
    HfCheckpoint out = *this;
    const auto experts = config.at("num_experts").get<std::uint64_t>();
    const auto layers = config.at("num_hidden_layers").get<std::uint64_t>();
    for (std::uint64_t i = 0; i < layers; ++i) {
        fuse_experts(out, concat("model.layers.", i, ".mlp."), experts);
    }
    if (out.tensors.contains("mtp.fc_hidden.weight")) {
        fuse_experts(out, "mtp.layers.0.mlp.", experts);
    }
    const auto layer = config.at("ple_layer_ids").at(0).get<std::uint64_t>() - 1;
    const std::string table = concat("model.layers.", layer, ".ple.ple_embedding.ngram_embedding.");
    std::vector<const HfTensor*> shards;
    while (tensors.contains(concat(table, "shard_", shards.size(), ".weight"))) {
        shards.push_back(&at(concat(table, "shard_", shards.size(), ".weight")));
        out.tensors.erase(concat(table, "shard_", shards.size() - 1, ".weight"));
    }
    out.tensors[table + "weight"] = joined(shards, false);
    out.rename_prefix("model.", "model.language_model.");
    out.tensors["model.visual.patch_embed.proj.weight"] = bf16_tensor({2}, {1, 2});
    ordered_json text = config;
    text.erase("architectures");
    text["model_type"] = "qwen4_exp_text";
    out.config = {{"architectures", {"Qwen4ExpForConditionalGeneration"}},
                  {"model_type", "qwen4_exp"},
                  {"text_config", text},
                  {"vision_config", {{"depth", 1}}}};
    return out;
}

ordered_json small_config() {
    return ordered_json::parse(R"({
        "architectures": ["Qwen4ExpForCausalLM"], "model_type": "qwen4_exp_text",
        "hidden_size": 24, "num_hidden_layers": 4, "vocab_size": 37,
        "max_position_embeddings": 77, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "hc_count": 3, "hc_lowrank": 7,
        "layer_types": ["linear_attention", "full_attention", "linear_attention",
                        "full_attention"],
        "linear_num_key_heads": 3, "linear_num_value_heads": 15, "linear_key_head_dim": 2,
        "linear_value_head_dim": 2, "linear_conv_kernel_dim": 4,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
        "indexer_n_heads": 3, "indexer_head_dim": 8, "indexer_budget": 20,
        "indexer_compress_ratio": 5, "indexer_kv_heads": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                            "partial_rotary_factor": 0.25},
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 9,
        "shared_expert_intermediate_size": 11,
        "ple_layer_ids": [3], "ngram_size": 3, "heads_per_ngram": 4, "ple_embed_dim": 40,
        "ple_conv_kernel_size": 3, "ngram_vocab_size_base": 50, "eos_token_id": [5, 6],
        "tie_word_embeddings": false, "mtp_num_hidden_layers": 1})");
}

ordered_json block_config() {
    ordered_json config = small_config();
    config["hidden_size"] = 32;
    config["hc_lowrank"] = 64;
    config["linear_num_key_heads"] = 4;
    config["linear_num_value_heads"] = 16;
    config["moe_intermediate_size"] = 32;
    config["shared_expert_intermediate_size"] = 96;
    config["ple_embed_dim"] = 256;
    return config;
}

}  // namespace strata::test
