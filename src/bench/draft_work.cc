#include "bench/draft_work.h"

#include <algorithm>

#include "bench/work.h"
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
    const op::CacheRow cell{cache, config.kv_heads, config.head_dim};
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
        const std::int64_t window = config.layer_window(layer);
        const std::int64_t seen = window == 0 ? length : std::min(length, window);
        bytes.state += 2.0 * static_cast<double>(seen * cell.bytes());
    }
    return bytes;
}

BytesRead mtp_draft_bytes(const gguf::File& file, const model::Config& config, op::CacheType cache,
                          double head_bytes, std::int64_t length, std::int64_t guesses) {
    using enum model::TensorClass;
    BytesRead one;
    for (const model::TensorSpec& spec : model::tensor_list(config)) {
        const auto [tensor, shares] = model::find_held(file, spec);
        if (!spec.mtp || tensor == nullptr) continue;
        const bool experts = spec.tensor_class == expert_gate || spec.tensor_class == expert_down;
        if (experts) {
            const double share = static_cast<double>(config.experts_active) / config.experts;
            one.experts += share * bytes_of(*tensor) / shares;
        } else {
            one.dense += bytes_of(*tensor);
        }
    }
    one.head =
        own_or(file.find_tensor(model::block_name(config.layers, model::kMtpHeadName)), head_bytes);
    one.state = attention_bytes(config, cache, length);
    const auto all = static_cast<double>(guesses);
    return {all * one.experts, all * one.head, all * one.dense, 0, all * one.state};
}

}  // namespace strata::bench
