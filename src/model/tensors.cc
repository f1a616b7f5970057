#include "model/tensors.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace strata::model {
namespace {

using Shape = std::vector<std::uint64_t>;

// Collects the specifications of one block or of the tensors outside blocks.
class List {
  public:
    explicit List(std::vector<TensorSpec>& out) : out_(out) {}

    void block(std::int64_t index, bool mtp) {
        prefix_ = concat("blk.", index, '.');
        index_ = index;
        mtp_ = mtp;
    }

    TensorSpec& add(std::string_view name, TensorClass c, std::initializer_list<std::int64_t> shape,
                    Presence presence = Presence::required) {
        TensorSpec spec;
        spec.name = concat(prefix_, name);
        for (const std::int64_t n : shape) spec.shape.push_back(static_cast<std::uint64_t>(n));
        spec.tensor_class = c;
        if (c == TensorClass::small && shape.size() == 1) spec.role = TensorRole::gain;
        spec.presence = presence;
        spec.block = index_;
        spec.mtp = mtp_;
        out_.push_back(std::move(spec));
        return out_.back();
    }

    void hyper_connection(const Config& c, std::string_view name, bool inject) {
        using enum TensorClass;
        add(concat(name, "_norm.weight"), small, {c.stream_width()});
        add(concat(name, "_down.weight"), hyper_connection_, {c.stream_width(), c.stream_rank});
        add(concat(name, "_up.weight"), hyper_connection_, {c.stream_rank, c.stream_width()});
        if (inject) {
            add(concat(name, "_inject.weight"), hyper_connection_, {c.stream_width(), c.streams});
        }
    }

  private:
    static constexpr TensorClass hyper_connection_ = TensorClass::hyper_connection;
    std::vector<TensorSpec>& out_;
    std::string prefix_;
    std::int64_t index_ = -1;
    bool mtp_ = false;
};

void add_delta_net(List& list, const Config& c) {
    using enum TensorClass;
    const std::int64_t inner = c.delta_value_width();
    list.add("attn_qkv.weight", delta_net, {c.hidden, c.delta_channels()});
    list.add("attn_gate.weight", delta_net, {c.hidden, inner});
    list.add("ssm_conv1d.weight", small, {c.delta_kernel, c.delta_channels()}).role =
        TensorRole::convolution;
    list.add("ssm_dt.bias", small, {c.delta_value_heads}).role = TensorRole::decay_bias;
    list.add("ssm_a", small, {c.delta_value_heads}).role = TensorRole::decay_rate;
    list.add("ssm_beta.weight", delta_net, {c.hidden, c.delta_value_heads});
    list.add("ssm_alpha.weight", delta_net, {c.hidden, c.delta_value_heads});
    list.add("ssm_norm.weight", small, {c.delta_head_dim});
    list.add("ssm_out.weight", delta_net, {inner, c.hidden});
}

void add_attention(List& list, const Config& c) {
    using enum TensorClass;
    list.add("attn_q.weight", attention, {c.hidden, 2 * c.query_width()});
    list.add("attn_k.weight", attention, {c.hidden, c.kv_width()});
    list.add("attn_v.weight", attention, {c.hidden, c.kv_width()});
    list.add("attn_output.weight", attention, {c.query_width(), c.hidden});
    list.add("attn_q_norm.weight", small, {c.head_dim});
    list.add("attn_k_norm.weight", small, {c.head_dim});
    list.add("indexer.q_proj.weight", attention,
             {c.hidden, std::int64_t{c.index_heads} * c.index_dim});
    list.add("indexer.k_proj.weight", attention, {c.hidden, c.index_dim});
    list.add("indexer.q_norm.weight", small, {c.index_dim});
    list.add("indexer.k_norm.weight", small, {c.index_dim});
}

void add_ngram(List& list, const Config& c) {
    using enum TensorClass;
    const std::int64_t width = c.ngram.row_width * c.ngram.heads();
    list.add("ple_key.weight", ngram, {width, c.stream_width()});
    list.add("ple_value.weight", ngram, {width, c.hidden});
    list.add("ple_norm_key.weight", small, {c.stream_width()});
    list.add("ple_norm_query.weight", small, {c.stream_width()});
    list.add("ple_norm_conv.weight", small, {c.stream_width()});
    list.add("ple_conv1d.weight", small, {c.ngram.kernel, c.stream_width()}).role =
        TensorRole::convolution;
}

void add_experts(List& list, const Config& c) {
    using enum TensorClass;
    const std::int64_t f = c.expert_hidden;
    list.add("ffn_gate_inp.weight", router, {c.hidden, c.experts});
    list.add("ffn_gate_exps.weight", expert_gate, {c.hidden, f, c.experts},
             Presence::separate_or_fused);
    list.add("ffn_up_exps.weight", expert_gate, {c.hidden, f, c.experts},
             Presence::separate_or_fused);
    list.add("ffn_down_exps.weight", expert_down, {f, c.hidden, c.experts});
    list.add("ffn_gate_inp_shexp.weight", small, {c.hidden}).role = TensorRole::matrix;
    list.add("ffn_gate_shexp.weight", shared_expert, {c.hidden, c.shared_hidden});
    list.add("ffn_up_shexp.weight", shared_expert, {c.hidden, c.shared_hidden});
    list.add("ffn_down_shexp.weight", shared_expert, {c.shared_hidden, c.hidden});
}

void add_mtp(List& list, const Config& c) {
    using enum TensorClass;
    list.add("nextn.enorm.weight", small, {c.hidden});
    list.add("nextn.hnorm.weight", small, {c.stream_width()});
    list.add("nextn.eh_proj.weight", mtp, {2 * c.hidden, c.hidden});
    list.hyper_connection(c, "nextn.hc_head", false);
}

std::uint64_t ngram_rows(const NgramConfig& ngram) {
    std::uint64_t rows = 0;
    for (std::size_t h = 0; h < ngram.vocabulary.size(); ++h) {
        rows = std::max(rows, ngram.offsets[h] + ngram.vocabulary[h]);
    }
    return rows;
}

std::string shape_text(std::span<const std::uint64_t> shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) text += concat(i == 0 ? "" : ", ", shape[i]);
    return text + "]";
}

// Dimensions of one beyond the wanted ones carry no meaning, and some tools write norms as
// [hidden, streams].
bool same_shape(const TensorSpec& spec, const gguf::Tensor& tensor) {
    if (spec.shape.size() == 1) {
        return tensor.elements() == spec.shape[0];
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(gguf::kDimensionsMax); ++i) {
        const std::uint64_t want = i < spec.shape.size() ? spec.shape[i] : 1;
        const std::uint64_t have = tensor.dimension(i);
        if (i == 1 && spec.rows_at_least ? have < want : have != want) return false;
    }
    return true;
}

}  // namespace

std::string_view class_name(TensorClass c) {
    switch (c) {
        case TensorClass::embedding:
            return "embedding";
        case TensorClass::head:
            return "head";
        case TensorClass::expert_gate:
            return "experts gate and up";
        case TensorClass::expert_down:
            return "experts down";
        case TensorClass::shared_expert:
            return "shared experts";
        case TensorClass::hyper_connection:
            return "hyper-connections";
        case TensorClass::delta_net:
            return "delta nets";
        case TensorClass::attention:
            return "attention";
        case TensorClass::router:
            return "routers";
        case TensorClass::ngram_table:
            return "n-gram table";
        case TensorClass::ngram:
            return "n-gram block";
        case TensorClass::mtp:
            return "MTP";
        case TensorClass::small:
            return "norms and other vectors";
    }
    return "unknown";
}

std::string block_name(std::int64_t block, std::string_view suffix) {
    return concat("blk.", block, '.', suffix);
}

std::vector<TensorSpec> tensor_list(const Config& config) {
    using enum TensorClass;
    std::vector<TensorSpec> out;
    List list(out);
    list.add("token_embd.weight", embedding, {config.hidden, config.vocabulary});
    list.add("output.weight", head, {config.hidden, config.vocabulary}, Presence::optional);
    list.hyper_connection(config, "output_hc", false);
    for (std::int64_t i = 0; i < config.layers + config.mtp_layers; ++i) {
        const bool is_mtp = i >= config.layers;
        list.block(i, is_mtp);
        list.hyper_connection(config, "hc_attn", true);
        list.hyper_connection(config, "hc_ffn", true);
        const bool attends =
            is_mtp || config.kinds[static_cast<std::size_t>(i)] == LayerKind::sparse_attention;
        attends ? add_attention(list, config) : add_delta_net(list, config);
        if (i == config.ngram.layer) add_ngram(list, config);
        add_experts(list, config);
        if (is_mtp) add_mtp(list, config);
    }
    if (config.ngram.present()) {
        TensorSpec table;
        table.name = "per_layer_token_embd.weight";
        table.shape = {static_cast<std::uint64_t>(config.ngram.row_width),
                       ngram_rows(config.ngram)};
        table.tensor_class = ngram_table;
        table.rows_at_least = true;
        out.push_back(std::move(table));
    }
    return out;
}

Held find_held(const gguf::File& file, const TensorSpec& spec) {
    const gguf::Tensor* own = file.find_tensor(spec.name);
    if (own != nullptr || spec.presence != Presence::separate_or_fused) return {own};
    const gguf::Tensor* fused = file.find_tensor(block_name(spec.block, kFusedExpertsName));
    return {fused, fused == nullptr ? 1 : 2};
}

namespace {

std::vector<std::string> missing(const Config& config, const gguf::File& file, bool mtp_alone) {
    std::vector<std::string> sentences;
    for (TensorSpec spec : tensor_list(config)) {
        if (mtp_alone && !spec.mtp) continue;
        const auto [tensor, shares] = find_held(file, spec);
        if (tensor == nullptr && spec.presence == Presence::optional) continue;
        if (tensor == nullptr) {
            sentences.push_back(concat("tensor ", quote(spec.name), " is missing, wanted shape ",
                                       shape_text(spec.shape)));
            continue;
        }
        if (shares > 1) spec.shape[1] *= static_cast<std::uint64_t>(shares);
        if (!same_shape(spec, *tensor)) {
            std::string sentence =
                concat("tensor ", quote(tensor->name), " has the shape ", shape_text(tensor->shape),
                       ", wanted ", shape_text(spec.shape));
            // Of a tensor that several specs share once.
            if (std::ranges::find(sentences, sentence) == sentences.end()) {
                sentences.push_back(std::move(sentence));
            }
        }
    }
    return sentences;
}

}  // namespace

std::vector<std::string> missing_tensors(const Config& config, const gguf::File& file) {
    return missing(config, file, false);
}

std::vector<std::string> missing_mtp_tensors(const Config& config, const gguf::File& file) {
    return missing(config, file, true);
}

}  // namespace strata::model
