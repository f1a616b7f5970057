#include "bench/work.h"

#include <algorithm>

#include "model/tensors.h"
#include "quant/type.h"

namespace strata::bench {
namespace {

void count(const gguf::Tensor& tensor, double parts, double& bytes, MultiplyAdds& sum) {
    const quant::TypeInfo& type = quant::info(tensor.type);
    const double values = static_cast<double>(tensor.elements()) / parts;
    bytes += static_cast<double>(tensor.data.size()) / parts;
    // Vectors are used by values, not by products.
    if (tensor.shape.size() < 2) return;
    if (type.block > 1) {
        sum.i8 += values;
    } else if (type.block_bytes == 2) {
        sum.bf16 += values;
    } else {
        sum.f32 += values;
    }
}

void add_scaled(MultiplyAdds& to, const MultiplyAdds& from, double factor) {
    to.i8 += from.i8 * factor;
    to.bf16 += from.bf16 * factor;
    to.f32 += from.f32 * factor;
}

double row_bytes(const gguf::Tensor& tensor) {
    return static_cast<double>(tensor.data.size()) * static_cast<double>(tensor.shape[0]) /
           static_cast<double>(tensor.elements());
}

}  // namespace

void Work::add(const Work& other) {
    bytes.experts += other.bytes.experts;
    bytes.head += other.bytes.head;
    bytes.dense += other.bytes.dense;
    bytes.rows += other.bytes.rows;
    bytes.state += other.bytes.state;
    add_scaled(multiply_adds, other.multiply_adds, 1);
}

double Work::bytes_ms(const MachineRates& rates) const {
    return 1e3 * bytes.all() / rates.read_bytes;
}

double Work::multiply_adds_ms(const MachineRates& rates) const {
    // A rate that was not measured bounds nothing.
    const auto seconds = [](double count, double rate) { return rate > 0 ? count / rate : 0; };
    return 1e3 * (seconds(multiply_adds.i8, rates.i8_multiply_adds) +
                  seconds(multiply_adds.bf16, rates.bf16_multiply_adds) +
                  seconds(multiply_adds.f32, rates.f32_multiply_adds));
}

WorkCount::WorkCount(const gguf::File& file, const model::Config& config, op::CacheType cache)
    : config_(config), cache_(cache) {
    using enum model::TensorClass;
    const auto layers = static_cast<std::size_t>(config.layers);
    expert_bytes_.resize(layers);
    expert_.resize(layers);
    const gguf::Tensor* tied = nullptr;
    for (const model::TensorSpec& spec : model::tensor_list(config)) {
        const auto [tensor, shares] = model::find_held(file, spec);
        if (tensor == nullptr || spec.mtp || spec.tensor_class == mtp) continue;
        if (spec.tensor_class == embedding) {
            row_bytes_ += row_bytes(*tensor);
            tied = tensor;
        } else if (spec.tensor_class == ngram_table) {
            row_bytes_ += config.ngram.heads() * row_bytes(*tensor);
        } else if (spec.tensor_class == expert_gate || spec.tensor_class == expert_down) {
            const auto layer = static_cast<std::size_t>(spec.block);
            const double parts = static_cast<double>(config.experts) * shares;
            count(*tensor, parts, expert_bytes_[layer], expert_[layer]);
        } else if (spec.tensor_class == head) {
            count(*tensor, 1, head_bytes_, head_);
        } else {
            count(*tensor, 1, dense_bytes_, dense_);
        }
    }
    // A file without an output matrix ties it to the embedding.
    if (head_bytes_ == 0) count(*tied, 1, head_bytes_, head_);
}

double attention_bytes(const model::Config& config, op::CacheType cache, std::int64_t length) {
    const op::CacheRow cached{cache, config.kv_heads, config.head_dim};
    const auto kept = std::min<std::int64_t>(length, config.index_budget + config.index_ratio);
    return 2.0 * static_cast<double>(kept * cached.bytes()) +
           4.0 * static_cast<double>(length / config.index_ratio) * config.index_dim;
}

void WorkCount::add_state(const StepShape& shape, Work& work) const {
    const double memory = static_cast<double>(config_.delta_value_heads) * config_.delta_head_dim *
                          config_.delta_head_dim;
    const double history = static_cast<double>(config_.delta_kernel - 1) *
                           static_cast<double>(config_.delta_channels());
    const std::int64_t all = shape.first + shape.rows;
    for (const model::LayerKind kind : config_.kinds) {
        if (kind == model::LayerKind::delta_net) {
            work.bytes.state += 2 * 4 * (memory + history);
            // Decay and read, write, read again.
            work.multiply_adds.f32 += 3 * memory * static_cast<double>(shape.rows);
            continue;
        }
        // Rows may share what they select: of the cache the last row's part is counted, once.
        work.bytes.state += attention_bytes(config_, cache_, all);
        for (std::int64_t row = shape.first; row < all; ++row) {
            const auto visible =
                std::min<std::int64_t>(row + 1, config_.index_budget + config_.index_ratio);
            work.multiply_adds.f32 +=
                2.0 * static_cast<double>(visible) * static_cast<double>(config_.query_width()) +
                static_cast<double>((row + 1) / config_.index_ratio) * config_.index_heads *
                    config_.index_dim;
        }
    }
}

Work WorkCount::step(const StepShape& shape, const std::vector<std::int64_t>& experts_read) const {
    const auto rows = static_cast<double>(shape.rows);
    Work work;
    work.bytes.dense = dense_bytes_;
    work.bytes.head = shape.logit_rows > 0 ? head_bytes_ : 0;
    work.bytes.rows = rows * row_bytes_;
    add_scaled(work.multiply_adds, dense_, rows);
    add_scaled(work.multiply_adds, head_, static_cast<double>(shape.logit_rows));
    for (std::size_t layer = 0; layer < expert_bytes_.size(); ++layer) {
        work.bytes.experts += static_cast<double>(experts_read[layer]) * expert_bytes_[layer];
        add_scaled(work.multiply_adds, expert_[layer], rows * config_.experts_active);
    }
    add_state(shape, work);
    return work;
}

}  // namespace strata::bench
