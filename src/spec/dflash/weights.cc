#include "spec/dflash/weights.h"

#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "model/draft_rows.h"
#include "model/tensors.h"
#include "spec/dflash/tensors.h"

namespace strata::dflash {

// Turns names into fields. check_tensors has found every tensor of its shape and type.
class Binder {
  public:
    Binder(const gguf::File& file, const Config& config, device::Device& device,
           device::Queue& queue, Weights& out)
        : file_(file), config_(config), device_(device), queue_(queue), out_(out) {}

    Status run();

  private:
    // Under the name of tensor_list, whichever the file uses.
    const gguf::Tensor& tensor(std::string_view name) const {
        const auto found = tensors_.find(concat(prefix_, name));
        STRATA_CHECK(found != tensors_.end());
        return *found->second;
    }
    static Status weight(const gguf::Tensor& from, op::Weight& to);
    Status matrix(const gguf::Tensor& from, op::Weight& to);
    Status matrix(std::string_view name, op::Weight& to) { return matrix(tensor(name), to); }
    Status table(const gguf::Tensor& from, op::Weight& to);
    Status vector(std::string_view name, const float*& values);
    Result<const std::byte*> copy(std::span<const std::byte> bytes);
    Status convolution(std::string_view part, op::DflashConv& conv);
    Status layer(std::int64_t block, op::DflashLayer& layer);
    Status own_head();
    Status map(const gguf::Tensor& from);

    const gguf::File& file_;
    const Config& config_;
    device::Device& device_;
    device::Queue& queue_;
    Weights& out_;
    std::unordered_map<std::string, const gguf::Tensor*> tensors_;
    std::string prefix_;
};

// All but the address.
Status Binder::weight(const gguf::Tensor& from, op::Weight& to) {
    STRATA_ASSIGN(const std::uint64_t row_bytes, quant::row_bytes(from.type, from.shape[0]));
    to.type = from.type;
    to.cols = static_cast<std::int64_t>(from.shape[0]);
    to.rows = static_cast<std::int64_t>(from.elements() / from.shape[0]);
    to.row_bytes = static_cast<std::int64_t>(row_bytes);
    return Ok{};
}

Status Binder::matrix(const gguf::Tensor& from, op::Weight& to) {
    STRATA_TRY(weight(from, to));
    STRATA_ASSIGN(to.data, device_.resident_matrix(queue_, from.data, to.type, to.cols));
    if (to.data != from.data.data()) forget_pages(from.data);  // the device has a copy
    return Ok{};
}

Status Binder::table(const gguf::Tensor& from, op::Weight& to) {
    STRATA_TRY(weight(from, to));
    STRATA_ASSIGN(to.data, device_.resident(queue_, from.data));
    if (to.data != from.data.data()) forget_pages(from.data);  // the device has a copy
    return Ok{};
}

Result<const std::byte*> Binder::copy(std::span<const std::byte> bytes) {
    STRATA_ASSIGN(device::Buffer buffer, device_.allocate(bytes.size()));
    device_.upload(queue_, buffer.data(), bytes);
    out_.buffers_.push_back(std::move(buffer));
    return static_cast<const std::byte*>(out_.buffers_.back().data());
}

Status Binder::vector(std::string_view name, const float*& values) {
    const gguf::Tensor& from = tensor(name);
    std::vector<float> decoded(from.elements());
    quant::info(from.type).decode(from.data.data(), decoded.data(),
                                  static_cast<std::int64_t>(decoded.size()));
    STRATA_ASSIGN(const std::byte* data, copy(std::as_bytes(std::span(decoded))));
    values = reinterpret_cast<const float*>(data);
    return Ok{};
}

Status Binder::convolution(std::string_view part, op::DflashConv& conv) {
    STRATA_TRY(vector(concat(part, "_conv_base"), conv.base));
    return matrix(concat(part, "_conv_proj.weight"), conv.projection);
}

Status Binder::layer(std::int64_t block, op::DflashLayer& layer) {
    prefix_ = model::block_name(block, "");
    layer.window = config_.layer_window(block);
    STRATA_TRY(vector("attn_norm.weight", layer.attention_norm));
    STRATA_TRY(convolution("attn", layer.attention_conv));
    STRATA_TRY(matrix("attn_q.weight", layer.query));
    STRATA_TRY(matrix("attn_k.weight", layer.key));
    STRATA_TRY(matrix("attn_v.weight", layer.value));
    STRATA_TRY(matrix("attn_output.weight", layer.out));
    STRATA_TRY(vector("attn_q_norm.weight", layer.query_norm));
    STRATA_TRY(vector("attn_k_norm.weight", layer.key_norm));
    STRATA_TRY(vector("ffn_norm.weight", layer.feed_norm));
    STRATA_TRY(convolution("ffn", layer.feed_conv));
    STRATA_TRY(matrix("ffn_gate.weight", layer.gate));
    STRATA_TRY(matrix("ffn_up.weight", layer.up));
    return matrix("ffn_down.weight", layer.down);
}

Status Binder::map(const gguf::Tensor& from) {
    STRATA_ASSIGN(const std::vector<std::int64_t> tokens,
                  model::read_draft_rows(file_, from, config_.vocabulary, config_.candidates));
    STRATA_ASSIGN(const std::byte* data, copy(std::as_bytes(std::span(tokens))));
    out_.token_of_row = {reinterpret_cast<const std::int64_t*>(data),
                         static_cast<std::int64_t>(tokens.size())};
    return Ok{};
}

Status Binder::own_head() {
    if (const gguf::Tensor* embedding = file_.find_tensor(kEmbeddingName)) {
        STRATA_TRY(table(*embedding, out_.embedding));
    }
    if (const gguf::Tensor* head = file_.find_tensor(kHeadName)) {
        STRATA_TRY(matrix(*head, out_.head));
    }
    const gguf::Tensor* tokens = file_.find_tensor(kMapName);
    return tokens == nullptr ? Status(Ok{}) : map(*tokens);
}

Status Binder::run() {
    for (const TensorSpec& spec : tensor_list(config_)) {
        tensors_.emplace(spec.name, find_tensor(file_, spec));
    }
    STRATA_TRY(matrix("fc.weight", out_.fuse));
    STRATA_TRY(vector("enc.output_norm.weight", out_.fuse_norm));
    STRATA_TRY(vector("output_norm.weight", out_.norm));
    STRATA_TRY(matrix("selector_hidden.weight", out_.selector));
    STRATA_TRY(table(tensor("selector_predecessor.weight"), out_.predecessor));
    STRATA_TRY(table(tensor("selector_successor.weight"), out_.successor));
    STRATA_TRY(own_head());
    out_.layers.resize(static_cast<std::size_t>(config_.layers));
    for (std::int64_t i = 0; i < config_.layers; ++i) {
        STRATA_TRY(layer(i, out_.layers[static_cast<std::size_t>(i)]));
    }
    return Ok{};
}

Result<Weights> Weights::bind(const gguf::File& file, const Config& config, device::Device& device,
                              device::Queue& queue) {
    STRATA_TRY(check_tensors(config, file));
    Weights weights;
    STRATA_TRY(Binder(file, config, device, queue, weights).run());
    queue.wait();
    return weights;
}

}  // namespace strata::dflash
