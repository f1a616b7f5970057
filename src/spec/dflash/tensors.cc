#include "spec/dflash/tensors.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "model/draft_rows.h"

namespace strata::dflash {
namespace {

// Where a tensor's block stands in its names.
struct Names {
    std::string gguf;
    std::string checkpoint;
};

class List {
  public:
    explicit List(std::vector<TensorSpec>& out) : out_(out) {}

    void block(std::int64_t index) {
        prefix_ = {concat("blk.", index, '.'), concat("layers.", index, '.')};
    }

    TensorSpec& add(TensorKind kind, std::string_view name, std::string_view checkpoint_name,
                    std::initializer_list<std::int64_t> shape) {
        TensorSpec spec;
        spec.name = concat(prefix_.gguf, name);
        spec.checkpoint_name = concat(prefix_.checkpoint, checkpoint_name);
        for (const std::int64_t n : shape) spec.shape.push_back(static_cast<std::uint64_t>(n));
        spec.kind = kind;
        out_.push_back(std::move(spec));
        return out_.back();
    }

    // `part` is "attn" or "ffn", `checkpoint_part` "attention_conv" or "mlp_conv".
    void convolution(const Config& c, std::string_view part, std::string_view checkpoint_part) {
        add(TensorKind::numbers, concat(part, "_conv_base"),
            concat(checkpoint_part, ".base_kernel"), {c.hidden, c.conv_taps, 2})
            .other_name = concat(prefix_.gguf, part, "_conv.base");
        add(TensorKind::kept, concat(part, "_conv_proj.weight"),
            concat(checkpoint_part, ".kernel_projection.weight"), {c.hidden, c.conv_rows()})
            .other_name = concat(prefix_.gguf, part, "_conv.proj.weight");
    }

  private:
    std::vector<TensorSpec>& out_;
    Names prefix_;
};

void add_layer(List& list, const Config& c) {
    using enum TensorKind;
    list.add(numbers, "attn_norm.weight", "input_layernorm.weight", {c.hidden});
    list.convolution(c, "attn", "attention_conv");
    list.add(matrix, "attn_q.weight", "self_attn.q_proj.weight", {c.hidden, c.query_width()});
    list.add(matrix, "attn_k.weight", "self_attn.k_proj.weight", {c.hidden, c.kv_width()});
    list.add(matrix, "attn_v.weight", "self_attn.v_proj.weight", {c.hidden, c.kv_width()});
    list.add(numbers, "attn_q_norm.weight", "self_attn.q_norm.weight", {c.head_dim});
    list.add(numbers, "attn_k_norm.weight", "self_attn.k_norm.weight", {c.head_dim});
    list.add(matrix, "attn_output.weight", "self_attn.o_proj.weight", {c.query_width(), c.hidden});
    list.add(numbers, "ffn_norm.weight", "post_attention_layernorm.weight", {c.hidden});
    list.convolution(c, "ffn", "mlp_conv");
    list.add(matrix, "ffn_gate.weight", "mlp.gate_proj.weight", {c.hidden, c.feed_width});
    list.add(matrix, "ffn_up.weight", "mlp.up_proj.weight", {c.hidden, c.feed_width});
    list.add(matrix, "ffn_down.weight", "mlp.down_proj.weight", {c.feed_width, c.hidden});
}

// Dimensions of one beyond the wanted ones carry no meaning.
bool same_shape(const std::vector<std::uint64_t>& wanted, const gguf::Tensor& tensor) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(gguf::kDimensionsMax); ++i) {
        if (tensor.dimension(i) != (i < wanted.size() ? wanted[i] : 1)) return false;
    }
    return true;
}

Status check_shape(const gguf::File& file, const gguf::Tensor& tensor,
                   const std::vector<std::uint64_t>& wanted) {
    if (same_shape(wanted, tensor)) return Ok{};
    return STRATA_ERROR(quote(file.path()), ": tensor ", quote(tensor.name), " has the shape ",
                        shape_text(tensor.shape), ", wanted ", shape_text(wanted));
}

Status check_type(const gguf::File& file, const gguf::Tensor& tensor, bool vector) {
    const quant::TypeInfo& type = quant::info(tensor.type);
    if (type.decode != nullptr && (!vector || type.block == 1)) return Ok{};
    return STRATA_ERROR(quote(file.path()), ": tensor ", quote(tensor.name), " is of type ",
                        type.name, ", wanted ",
                        vector ? "F32, F16 or BF16" : "a floating-point or quantized type");
}

// token_embd, output and d2t, each of which may be missing.
Status check_shared(const Config& config, const gguf::File& file) {
    const auto hidden = static_cast<std::uint64_t>(config.hidden);
    const auto vocabulary = static_cast<std::uint64_t>(config.vocabulary);
    const gguf::Tensor* head = file.find_tensor(kHeadName);
    const gguf::Tensor* map = file.find_tensor(kMapName);
    if (const gguf::Tensor* embedding = file.find_tensor(kEmbeddingName)) {
        STRATA_TRY(check_shape(file, *embedding, {hidden, vocabulary}));
        STRATA_TRY(check_type(file, *embedding, false));
    }
    return model::check_draft_rows(file, head, map, config.hidden, config.vocabulary);
}

}  // namespace

std::vector<TensorSpec> tensor_list(const Config& config) {
    using enum TensorKind;
    std::vector<TensorSpec> out;
    List list(out);
    list.add(matrix, "fc.weight", "fc.weight", {config.feature_width(), config.hidden});
    list.add(numbers, "enc.output_norm.weight", "hidden_norm.weight", {config.hidden});
    list.add(numbers, "output_norm.weight", "norm.weight", {config.hidden});
    list.add(kept, "selector_hidden.weight", "candidate_selector.hidden_projection.weight",
             {config.hidden, config.selector_rank})
        .other_name = "selector.hidden_proj.weight";
    list.add(kept, "selector_predecessor.weight", "candidate_selector.predecessor_codebook",
             {config.selector_rank, config.vocabulary})
        .other_name = "selector.pred_codebook";
    list.add(kept, "selector_successor.weight", "candidate_selector.successor_codebook",
             {config.selector_rank, config.vocabulary})
        .other_name = "selector.succ_codebook";
    for (std::int64_t i = 0; i < config.layers; ++i) {
        list.block(i);
        add_layer(list, config);
    }
    return out;
}

const gguf::Tensor* find_tensor(const gguf::File& file, const TensorSpec& spec) {
    const gguf::Tensor* tensor = file.find_tensor(spec.name);
    if (tensor != nullptr || spec.other_name.empty()) return tensor;
    return file.find_tensor(spec.other_name);
}

Status check_tensors(const Config& config, const gguf::File& file) {
    std::unordered_set<std::string_view> known = {kEmbeddingName, kHeadName, kMapName};
    for (const TensorSpec& spec : tensor_list(config)) {
        const gguf::Tensor* tensor = find_tensor(file, spec);
        if (tensor == nullptr) {
            return STRATA_ERROR(quote(file.path()), ": tensor ", quote(spec.name),
                                " is missing, wanted shape ", shape_text(spec.shape));
        }
        STRATA_TRY(check_shape(file, *tensor, spec.shape));
        STRATA_TRY(check_type(file, *tensor, spec.shape.size() == 1));
        known.insert(tensor->name);
    }
    for (const gguf::Tensor& tensor : file.tensors()) {
        if (known.contains(tensor.name)) continue;
        return STRATA_ERROR(quote(file.path()), ": tensor ", quote(tensor.name),
                            " is no part of a DFlash2 draft of ", config.layers, " layers");
    }
    return check_shared(config, file);
}

}  // namespace strata::dflash
