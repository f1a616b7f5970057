#include "bench/draft_work.h"

#include <algorithm>

#include "model/tensors.h"
#include "spec/dflash/tensors.h"

namespace strata::bench {
namespace {

double bytes_of(const gguf::Tensor& tensor) { return static_cast<double>(tensor.data.size()); }

double own_or(const gguf::Tensor* head, double bytes) {
    return head != nullptr ? bytes_of(*head) : bytes;
}

bool is_codebook(const dflash::TensorSpec& spec) {
    return spec.name == "selector_predecessor.weight" || spec.name == "selector_successor.weight";
}

// Keys and values.
double cells(op::CacheType cache, std::int64_t kv_heads, std::int64_t head_dim,
             std::int64_t count) {
    return 2.0 * static_cast<double>(op::CacheRow{cache, kv_heads, head_dim}.bytes() * count);
}

}  // namespace

BytesRead block_draft_bytes(const gguf::File& file, const dflash::Config& config,
                            op::CacheType cache, double head_bytes, std::int64_t length,
                            std::int64_t guesses) {
    BytesRead bytes;
    for (const dflash::TensorSpec& spec : dflash::tensor_list(config)) {
        const gguf::Tensor* tensor = dflash::find_tensor(file, spec);
        if (tensor == nullptr) continue;
        if (!is_codebook(spec)) {
            bytes.dense += bytes_of(*tensor);
            continue;
        }
        // A guess scores each of its candidates after the token before it.
        const double rows = static_cast<double>(guesses) * (config.candidates + 1) / 2;
        bytes.rows += rows * bytes_of(*tensor) / static_cast<double>(config.vocabulary);
    }
    bytes.head = own_or(file.find_tensor(dflash::kHeadName), head_bytes);
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
        const std::int64_t window = config.layer_window(layer);
        bytes.state += cells(cache, config.kv_heads, config.head_dim,
                             window == 0 ? length : std::min(length, window));
    }
    return bytes;
}

BytesRead mtp_draft_bytes(const gguf::File& file, const model::Config& config, op::CacheType cache,
                          double head_bytes, std::int64_t length, std::int64_t guesses) {
    using enum model::TensorClass;
    BytesRead one;
    for (const model::TensorSpec& spec : model::tensor_list(config)) {
        const gguf::Tensor* tensor = file.find_tensor(spec.name);
        if (!spec.mtp || tensor == nullptr) continue;
        const bool experts = spec.tensor_class == expert_gate || spec.tensor_class == expert_down;
        if (experts) {
            const double share = static_cast<double>(config.experts_active) / config.experts;
            one.experts += share * bytes_of(*tensor);
        } else {
            one.dense += bytes_of(*tensor);
        }
    }
    one.head =
        own_or(file.find_tensor(model::block_name(config.layers, model::kMtpHeadName)), head_bytes);
    const auto kept = std::min<std::int64_t>(length, config.index_budget + config.index_ratio);
    one.state = cells(cache, config.kv_heads, config.head_dim, kept) +
                4.0 * static_cast<double>(length / config.index_ratio) * config.index_dim;
    const auto all = static_cast<double>(guesses);
    return {all * one.experts, all * one.head, all * one.dense, 0, all * one.state};
}

}  // namespace strata::bench
