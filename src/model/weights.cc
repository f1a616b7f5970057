#include "model/weights.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/mapped_file.h"
#include "base/text.h"
#include "model/draft_rows.h"
#include "model/factors.h"
#include "model/tensors.h"

namespace strata::model {

// Turns names into fields. After bind() has found every tensor present and of its shape, what can
// still fail is a type or memory.
class Binder {
  public:
    Binder(const gguf::File& file, const Config& config, device::Device& device,
           device::Queue& queue, Weights& out, bool ngram_resident = false)
        : file_(file),
          config_(config),
          device_(device),
          queue_(queue),
          out_(out),
          ngram_resident_(ngram_resident) {}

    Status run();
    Status run_mtp() { return mtp(out_.mtp.emplace()); }

  private:
    Result<const gguf::Tensor*> tensor(std::string_view name) const {
        return gguf::require_tensor(file_, concat(prefix_, name));
    }
    Status stored(const gguf::Tensor& t, op::Weight& weight);
    Status product_matrix(const gguf::Tensor& t, op::Weight& weight);
    Status matrix(std::string_view name, op::Weight& weight);
    Status table(std::string_view name, op::Weight& weight, bool resident = true);
    Status of_experts(std::string_view name, op::Weight& weight, const float*& factors);
    Result<std::vector<float>> factors(const gguf::Tensor& t) const;
    // Where the device has a copy, which the weights own.
    template <typename T>
    Result<const T*> place(const std::vector<T>& list) {
        STRATA_ASSIGN(device::Buffer buffer, device_.allocate(list.size() * sizeof(T)));
        device_.upload(queue_, buffer.data(), std::as_bytes(std::span(list)));
        const T* at = buffer.template as<const T>();
        out_.buffers_.push_back(std::move(buffer));
        return at;
    }
    Status vector(std::string_view name, const float*& to);
    Status hyper_connection(std::string_view name, bool inject, HyperConnectionWeights& w);
    Status delta_net(DeltaNetWeights& w);
    Status attention(AttentionWeights& w);
    Status experts(ExpertWeights& w);
    Status expert_tables(op::ExpertTable& table);
    Status layer(std::int64_t block, LayerWeights& w);
    Status ngram(NgramWeights& w);
    Status mtp(MtpWeights& w);
    Status mtp_head(MtpWeights& w);

    const gguf::File& file_;
    const Config& config_;
    device::Device& device_;
    device::Queue& queue_;
    Weights& out_;
    const bool ngram_resident_;
    std::string prefix_;
};

Result<std::vector<float>> Binder::factors(const gguf::Tensor& t) const {
    STRATA_ASSIGN(std::vector<float> factors, factors_of(file_, t));
    if (factors.empty() || device_.has_factors()) return factors;
    return STRATA_ERROR(quote(file_.path()), ": tensor ", quote(t.name),
                        " has factors of its own, ", "which the device ", device_.name(),
                        " does not multiply by, wanted none");
}

// All but the address.
Status Binder::stored(const gguf::Tensor& t, op::Weight& weight) {
    if (quant::info(t.type).decode == nullptr) {
        return STRATA_ERROR(quote(file_.path()), ": tensor ", quote(t.name), " is of type ",
                            quant::info(t.type).name, ", wanted a floating-point type");
    }
    STRATA_ASSIGN(const std::uint64_t row_bytes, quant::row_bytes(t.type, t.shape[0]));
    weight.type = t.type;
    weight.cols = static_cast<std::int64_t>(t.shape[0]);
    weight.rows = static_cast<std::int64_t>(t.elements() / t.shape[0]);
    weight.row_bytes = static_cast<std::int64_t>(row_bytes);
    return Ok{};
}

// Where the device reads it in products.
Status Binder::product_matrix(const gguf::Tensor& t, op::Weight& weight) {
    STRATA_TRY(stored(t, weight));
    STRATA_ASSIGN(weight.data, device_.resident_matrix(queue_, t.data, weight.type, weight.cols));
    if (weight.data != t.data.data()) forget_pages(t.data);  // the device has a copy
    return Ok{};
}

Status Binder::matrix(std::string_view name, op::Weight& weight) {
    STRATA_ASSIGN(const gguf::Tensor* t, tensor(name));
    STRATA_TRY(product_matrix(*t, weight));
    STRATA_ASSIGN(const std::vector<float> own, factors(*t));
    if (!own.empty()) weight.factor = own.front();
    return Ok{};
}

// A matrix whose rows are decoded.
Status Binder::table(std::string_view name, op::Weight& weight, bool resident) {
    STRATA_ASSIGN(const gguf::Tensor* t, tensor(name));
    STRATA_TRY(refuse_factors(file_, *t));
    STRATA_TRY(stored(*t, weight));
    if (!resident) return Ok{};
    STRATA_ASSIGN(weight.data, device_.resident(queue_, t->data));
    if (weight.data != t->data.data()) forget_pages(t->data);  // the device has a copy
    return Ok{};
}

Status Binder::of_experts(std::string_view name, op::Weight& weight, const float*& own) {
    STRATA_ASSIGN(const gguf::Tensor* t, tensor(name));
    STRATA_TRY(product_matrix(*t, weight));
    STRATA_ASSIGN(const std::vector<float> list, factors(*t));
    if (list.empty()) return Ok{};
    STRATA_ASSIGN(own, place(list));
    return Ok{};
}

Status Binder::vector(std::string_view name, const float*& to) {
    STRATA_ASSIGN(const gguf::Tensor* t, tensor(name));
    const quant::TypeInfo& type = quant::info(t->type);
    if (type.decode == nullptr) {
        return STRATA_ERROR(quote(file_.path()), ": tensor ", quote(t->name), " is of type ",
                            type.name, ", wanted a floating-point type");
    }
    STRATA_TRY(refuse_factors(file_, *t));
    std::vector<float> decoded(t->elements());
    type.decode(t->data.data(), decoded.data(), static_cast<std::int64_t>(decoded.size()));
    STRATA_ASSIGN(to, place(decoded));
    return Ok{};
}

Status Binder::hyper_connection(std::string_view name, bool inject, HyperConnectionWeights& w) {
    STRATA_TRY(vector(concat(name, "_norm.weight"), w.norm));
    STRATA_TRY(matrix(concat(name, "_down.weight"), w.down));
    STRATA_TRY(matrix(concat(name, "_up.weight"), w.up));
    return inject ? matrix(concat(name, "_inject.weight"), w.inject) : Status(Ok{});
}

Status Binder::delta_net(DeltaNetWeights& w) {
    STRATA_TRY(matrix("attn_qkv.weight", w.qkv));
    STRATA_TRY(matrix("attn_gate.weight", w.gate));
    STRATA_TRY(matrix("ssm_beta.weight", w.beta));
    STRATA_TRY(matrix("ssm_alpha.weight", w.alpha));
    STRATA_TRY(vector("ssm_conv1d.weight", w.conv));
    STRATA_TRY(vector("ssm_a", w.decay_rate));
    STRATA_TRY(vector("ssm_dt.bias", w.decay_bias));
    STRATA_TRY(vector("ssm_norm.weight", w.norm));
    return matrix("ssm_out.weight", w.out);
}

Status Binder::attention(AttentionWeights& w) {
    STRATA_TRY(matrix("attn_q.weight", w.query));
    STRATA_TRY(matrix("attn_k.weight", w.key));
    STRATA_TRY(matrix("attn_v.weight", w.value));
    STRATA_TRY(matrix("attn_output.weight", w.out));
    STRATA_TRY(matrix("indexer.q_proj.weight", w.index_query));
    STRATA_TRY(matrix("indexer.k_proj.weight", w.index_key));
    STRATA_TRY(vector("attn_q_norm.weight", w.query_norm));
    STRATA_TRY(vector("attn_k_norm.weight", w.key_norm));
    STRATA_TRY(vector("indexer.q_norm.weight", w.index_query_norm));
    return vector("indexer.k_norm.weight", w.index_key_norm);
}

Status Binder::expert_tables(op::ExpertTable& table) {
    const bool fused = tensor("ffn_gate_exps.weight").ok() == false;
    op::Weight gate;
    op::Weight up;
    op::Weight down;
    STRATA_TRY(
        of_experts(fused ? kFusedExpertsName : "ffn_gate_exps.weight", gate, table.gate_factors));
    STRATA_TRY(of_experts(fused ? kFusedExpertsName : "ffn_up_exps.weight", up, table.up_factors));
    STRATA_TRY(of_experts("ffn_down_exps.weight", down, table.down_factors));
    table.hidden = config_.expert_hidden;
    table.gate_type = gate.type;
    table.up_type = up.type;
    table.down_type = down.type;
    // A fused matrix has each expert's gate rows before its up rows.
    const std::int64_t step = (fused ? 2 : 1) * table.hidden;
    std::vector<ExpertSlot> slots;
    for (std::int64_t e = 0; e < config_.experts; ++e) {
        slots.push_back({gate.row(e * step), up.row(e * step + (fused ? table.hidden : 0)),
                         down.row(e * config_.hidden)});
    }
    return out_.residency.add_layer(std::move(slots), device_, queue_, table);
}

Status Binder::experts(ExpertWeights& w) {
    STRATA_TRY(matrix("ffn_gate_inp.weight", w.router));
    STRATA_TRY(expert_tables(w.table));
    STRATA_TRY(matrix("ffn_gate_inp_shexp.weight", w.shared_scale));
    STRATA_TRY(matrix("ffn_gate_shexp.weight", w.shared_gate));
    STRATA_TRY(matrix("ffn_up_shexp.weight", w.shared_up));
    return matrix("ffn_down_shexp.weight", w.shared_down);
}

Status Binder::layer(std::int64_t block, LayerWeights& w) {
    prefix_ = block_name(block, "");
    STRATA_TRY(hyper_connection("hc_attn", true, w.attention_read));
    STRATA_TRY(hyper_connection("hc_ffn", true, w.experts_read));
    const bool attends =
        block >= config_.layers ||
        config_.kinds[static_cast<std::size_t>(block)] == LayerKind::sparse_attention;
    STRATA_TRY(attends ? attention(w.attention.emplace()) : delta_net(w.delta_net.emplace()));
    return experts(w.experts);
}

Status Binder::ngram(NgramWeights& w) {
    prefix_.clear();
    STRATA_TRY(table("per_layer_token_embd.weight", w.table, ngram_resident_));
    STRATA_ASSIGN(const gguf::Tensor* t, tensor("per_layer_token_embd.weight"));
    expect_scattered_reads(t->data);
    w.stored = {.path = file_.paths()[t->shard],
                .offset = t->offset,
                .rows = w.table.rows,
                .row_bytes = w.table.row_bytes};
    prefix_ = block_name(config_.ngram.layer, "");
    STRATA_TRY(matrix("ple_key.weight", w.key));
    STRATA_TRY(matrix("ple_value.weight", w.value));
    STRATA_TRY(vector("ple_norm_key.weight", w.norm_key));
    STRATA_TRY(vector("ple_norm_query.weight", w.norm_query));
    STRATA_TRY(vector("ple_norm_conv.weight", w.norm_conv));
    return vector("ple_conv1d.weight", w.conv);
}

Status Binder::mtp(MtpWeights& w) {
    STRATA_TRY(layer(config_.layers, w.layer));
    STRATA_TRY(vector("nextn.enorm.weight", w.norm_embedding));
    STRATA_TRY(vector("nextn.hnorm.weight", w.norm_hidden));
    STRATA_TRY(matrix("nextn.eh_proj.weight", w.fuse));
    STRATA_TRY(hyper_connection("nextn.hc_head", false, w.mixer));
    return mtp_head(w);
}

Status Binder::mtp_head(MtpWeights& w) {
    const gguf::Tensor* head = file_.find_tensor(concat(prefix_, kMtpHeadName));
    const gguf::Tensor* map = file_.find_tensor(concat(prefix_, kMtpMapName));
    STRATA_TRY(check_draft_rows(file_, head, map, config_.hidden, config_.vocabulary));
    w.head = out_.head;
    if (head != nullptr) STRATA_TRY(matrix(kMtpHeadName, w.head = {}));
    if (map == nullptr) return Ok{};
    STRATA_ASSIGN(const auto tokens, read_draft_rows(file_, *map, config_.vocabulary, 1));
    w.token_of_row.assign(tokens.begin(), tokens.end());
    STRATA_ASSIGN(const std::int64_t* placed, place(tokens));
    w.token_of_row_on_device = {placed, static_cast<std::int64_t>(tokens.size())};
    return Ok{};
}

Status Binder::run() {
    STRATA_TRY(table("token_embd.weight", out_.embedding));
    // A file without an output matrix ties it to the embedding.
    const bool tied = file_.find_tensor("output.weight") == nullptr;
    STRATA_TRY(matrix(tied ? "token_embd.weight" : "output.weight", out_.head));
    STRATA_TRY(hyper_connection("output_hc", false, out_.mixer));
    out_.layers.resize(static_cast<std::size_t>(config_.layers));
    for (std::size_t i = 0; i < out_.layers.size(); ++i) {
        STRATA_TRY(layer(static_cast<std::int64_t>(i), out_.layers[i]));
    }
    if (config_.ngram.present()) STRATA_TRY(ngram(out_.ngram.emplace()));
    return config_.mtp_layers > 0 ? run_mtp() : Status(Ok{});
}

namespace {

Status complete(const gguf::File& file, const std::vector<std::string>& lacks) {
    if (lacks.empty()) return Ok{};
    const std::string more = lacks.size() == 1 ? "" : concat(" (and ", lacks.size() - 1, " more)");
    return STRATA_ERROR(quote(file.path()), ": ", lacks.front(), more);
}

}  // namespace

Status Weights::bind_mtp(const gguf::File& file, const Config& config, device::Device& device,
                         device::Queue& queue) {
    STRATA_TRY(complete(file, missing_mtp_tensors(config, file)));
    return Binder(file, config, device, queue, *this).run_mtp();
}

std::uint64_t weight_bytes(const gguf::File& file, const Config& config) {
    std::uint64_t bytes = 0;
    for (const TensorSpec& spec : tensor_list(config)) {
        const auto [tensor, shares] = find_held(file, spec);
        if (tensor == nullptr || spec.tensor_class == TensorClass::ngram_table) continue;
        bytes += tensor->data.size() / static_cast<std::uint64_t>(shares);
    }
    return bytes;
}

Status check_room(const gguf::File& file, const Config& config, std::uint64_t available) {
    const std::uint64_t wanted = weight_bytes(file, config);
    if (wanted <= available) return Ok{};
    return STRATA_ERROR(quote(file.path()), " takes ", wanted,
                        " bytes of memory for its weights, and ", available,
                        " are available: more memory is wanted, or a file in fewer bits");
}

Result<Weights> Weights::bind(const gguf::File& file, const Config& config, device::Device& device,
                              device::Queue& queue, bool ngram_resident) {
    STRATA_TRY(complete(file, missing_tensors(config, file)));
    Weights weights;
    STRATA_TRY(Binder(file, config, device, queue, weights, ngram_resident).run());
    return weights;
}

}  // namespace strata::model
