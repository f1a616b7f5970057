#include "tests/convert/expected.h"

#include <cmath>
#include <utility>

#include "base/text.h"

namespace strata::test {
namespace {

using Values = std::vector<float>;

class Expected {
  public:
    explicit Expected(const HfCheckpoint& checkpoint) : hf_(checkpoint) {
        keys_ = size("linear_num_key_heads");
        dim_ = size("linear_key_head_dim");
        const std::size_t share = size("linear_num_value_heads") / keys_;
        head_of_.resize(share * keys_);
        for (std::size_t g = 0; g < keys_; ++g) {
            for (std::size_t r = 0; r < share; ++r) head_of_[keys_ * r + g] = share * g + r;
        }
    }
    std::map<std::string, Values> run();

  private:
    std::size_t size(const char* key) const { return hf_.config.at(key).get<std::size_t>(); }
    Values hf(const std::string& name) const { return hf_.at(name).floats(); }
    Values gamma(const std::string& name) const {
        Values values = hf(name);
        for (float& v : values) v = 1 + v;
        return values;
    }
    // The matrix with its last value heads' rows, `rows` a head, in GGUF's order.
    Values heads_last(const Values& in, std::size_t rows, std::size_t width) const;
    Values head_columns(const Values& in) const;
    void mixer(const std::string& gguf, const std::string& name, bool inject);
    void delta_net(const std::string& gguf, const std::string& name);
    void attention(const std::string& gguf, const std::string& name);
    void experts(const std::string& gguf, const std::string& name);
    void layer(const std::string& gguf, const std::string& name, bool linear);
    void ngram(const std::string& gguf, const std::string& name);
    void mtp(const std::string& gguf);

    const HfCheckpoint& hf_;
    std::size_t keys_;
    std::size_t dim_;
    std::vector<std::size_t> head_of_;  // GGUF head -> checkpoint head
    std::map<std::string, Values> out_;
};

Values Expected::heads_last(const Values& in, std::size_t rows, std::size_t width) const {
    Values out = in;
    const std::size_t first = in.size() - head_of_.size() * rows * width;
    for (std::size_t j = 0; j < head_of_.size(); ++j) {
        for (std::size_t i = 0; i < rows * width; ++i) {
            out[first + j * rows * width + i] = in[first + head_of_[j] * rows * width + i];
        }
    }
    return out;
}

Values Expected::head_columns(const Values& in) const {
    Values out(in.size());
    const std::size_t width = head_of_.size() * dim_;
    for (std::size_t i = 0; i < in.size(); ++i) {
        const std::size_t column = i % width;
        const std::size_t from = head_of_[column / dim_] * dim_ + column % dim_;
        out[i] = in[i - column + from];
    }
    return out;
}

void Expected::mixer(const std::string& gguf, const std::string& name, bool inject) {
    out_[gguf + "_norm.weight"] = gamma(name + "hc_norm.weight");
    out_[gguf + "_down.weight"] = hf(name + "input_mix_weight_down.weight");
    out_[gguf + "_up.weight"] = hf(name + "input_mix_weight_up.weight");
    if (inject) out_[gguf + "_inject.weight"] = hf(name + "block_inject_weight.weight");
}

void Expected::delta_net(const std::string& gguf, const std::string& name) {
    const std::size_t hidden = size("hidden_size");
    out_[gguf + "attn_qkv.weight"] = heads_last(hf(name + "in_proj_qkv.weight"), dim_, hidden);
    out_[gguf + "attn_gate.weight"] = heads_last(hf(name + "in_proj_z.weight"), dim_, hidden);
    out_[gguf + "ssm_beta.weight"] = heads_last(hf(name + "in_proj_b.weight"), 1, hidden);
    out_[gguf + "ssm_alpha.weight"] = heads_last(hf(name + "in_proj_a.weight"), 1, hidden);
    out_[gguf + "ssm_conv1d.weight"] =
        heads_last(hf(name + "conv1d.weight"), dim_, size("linear_conv_kernel_dim"));
    out_[gguf + "ssm_dt.bias"] = heads_last(hf(name + "dt_bias"), 1, 1);
    Values decay = heads_last(hf(name + "A_log"), 1, 1);
    for (float& v : decay) v = -std::exp(v);
    out_[gguf + "ssm_a"] = decay;
    out_[gguf + "ssm_norm.weight"] = hf(name + "norm.weight");
    out_[gguf + "ssm_out.weight"] = head_columns(hf(name + "out_proj.weight"));
}

void Expected::attention(const std::string& gguf, const std::string& name) {
    for (const auto& [to, from] :
         {std::pair("q", "q_proj"), {"k", "k_proj"}, {"v", "v_proj"}, {"output", "o_proj"}}) {
        out_[concat(gguf, "attn_", to, ".weight")] = hf(concat(name, from, ".weight"));
    }
    out_[gguf + "attn_q_norm.weight"] = gamma(name + "q_norm.weight");
    out_[gguf + "attn_k_norm.weight"] = gamma(name + "k_norm.weight");
    const Values joint = hf(name + "indexer.index_qk_proj.weight");
    const std::size_t queries =
        size("indexer_n_heads") * size("indexer_head_dim") * size("hidden_size");
    const auto middle = joint.begin() + static_cast<std::ptrdiff_t>(queries);
    out_[gguf + "indexer.q_proj.weight"] = Values(joint.begin(), middle);
    out_[gguf + "indexer.k_proj.weight"] = Values(middle, joint.end());
    out_[gguf + "indexer.q_norm.weight"] = gamma(name + "indexer.q_layernorm.weight");
    out_[gguf + "indexer.k_norm.weight"] = gamma(name + "indexer.k_layernorm.weight");
}

void Expected::experts(const std::string& gguf, const std::string& name) {
    out_[gguf + "ffn_gate_inp.weight"] = hf(name + "gate.weight");
    out_[gguf + "ffn_gate_inp_shexp.weight"] = hf(name + "shared_expert_gate.weight");
    for (const char* part : {"gate", "up", "down"}) {
        Values& all = out_[concat(gguf, "ffn_", part, "_exps.weight")];
        for (std::size_t e = 0; e < size("num_experts"); ++e) {
            const Values one = hf(concat(name, "experts.", e, '.', part, "_proj.weight"));
            all.insert(all.end(), one.begin(), one.end());
        }
        out_[concat(gguf, "ffn_", part, "_shexp.weight")] =
            hf(concat(name, "shared_expert.", part, "_proj.weight"));
    }
}

void Expected::layer(const std::string& gguf, const std::string& name, bool linear) {
    mixer(gguf + "hc_attn", name + "attn_hyper_connection.", true);
    mixer(gguf + "hc_ffn", name + "mlp_hyper_connection.", true);
    linear ? delta_net(gguf, name + "linear_attn.") : attention(gguf, name + "self_attn.");
    experts(gguf, name + "mlp.");
}

void Expected::ngram(const std::string& gguf, const std::string& name) {
    out_[gguf + "ple_key.weight"] = hf(name + "key_proj.weight");
    out_[gguf + "ple_value.weight"] = hf(name + "value_proj.weight");
    out_[gguf + "ple_norm_key.weight"] = gamma(name + "norm_key.weight");
    out_[gguf + "ple_norm_query.weight"] = gamma(name + "norm_query.weight");
    out_[gguf + "ple_norm_conv.weight"] = gamma(name + "norm_conv.weight");
    out_[gguf + "ple_conv1d.weight"] = hf(name + "conv1d.weight");
    Values& table = out_["per_layer_token_embd.weight"];
    const std::string shards = name + "ple_embedding.ngram_embedding.shard_";
    for (int i = 0; hf_.tensors.contains(concat(shards, i, ".weight")); ++i) {
        const Values one = hf(concat(shards, i, ".weight"));
        table.insert(table.end(), one.begin(), one.end());
    }
}

void Expected::mtp(const std::string& gguf) {
    const std::size_t hidden = size("hidden_size");
    out_[gguf + "nextn.enorm.weight"] = gamma("mtp.pre_fc_norm_embedding.weight");
    out_[gguf + "nextn.hnorm.weight"] = gamma("mtp.pre_fc_norm_hidden.weight");
    const Values embedding = hf("mtp.fc_embedding.weight");
    const Values residual = hf("mtp.fc_hidden.weight");
    Values& both = out_[gguf + "nextn.eh_proj.weight"];
    for (std::size_t row = 0; row < hidden; ++row) {
        for (const Values* half : {&embedding, &residual}) {
            for (std::size_t i = 0; i < hidden; ++i) both.push_back((*half)[row * hidden + i]);
        }
    }
    mixer(gguf + "nextn.hc_head", "mtp.hyper_connection_mixer.", false);
    layer(gguf, "mtp.layers.0.", false);
}

std::map<std::string, Values> Expected::run() {
    out_["token_embd.weight"] = hf("model.embed_tokens.weight");
    out_["output.weight"] = hf("lm_head.weight");
    mixer("output_hc", "model.hyper_connection_mixer.", false);
    const std::size_t layers = size("num_hidden_layers");
    for (std::size_t i = 0; i < layers; ++i) {
        const std::string gguf = concat("blk.", i, '.');
        const std::string name = concat("model.layers.", i, '.');
        layer(gguf, name, hf_.config.at("layer_types").at(i) == "linear_attention");
        if (hf_.config.at("ple_layer_ids").at(0) == i + 1) ngram(gguf, name + "ple.");
    }
    if (size("mtp_num_hidden_layers") > 0) mtp(concat("blk.", layers, '.'));
    return std::move(out_);
}

}  // namespace

std::map<std::string, std::vector<float>> expected_tensors(const HfCheckpoint& checkpoint) {
    return Expected(checkpoint).run();
}

}  // namespace strata::test
