#include "model/forward.h"

namespace strata::model {

Workspace Workspace::first_rows(std::int64_t rows) const {
    return {residual.first_rows(rows), x.first_rows(rows),      y.first_rows(rows),
            inject.first_rows(rows),   ngram.first_rows(rows),  ngram_rows.first_rows(rows),
            {tokens.data, rows},       chosen.first_rows(rows), ngram_table};
}

void Forward::embed() {
    ops_.embed({work_.tokens, weights_.embedding, config_.streams, work_.residual}, queue_);
    unwritten_ = false;
}

void Forward::read(const HyperConnectionWeights& weights) {
    op::StreamRead read;
    read.residual = work_.residual;
    if (unwritten_) {
        read.block_out = work_.y;
        read.block_inject = work_.inject;
    }
    read.norm = weights.norm;
    read.down = weights.down;
    read.up = weights.up;
    read.inject_weight = weights.inject;
    read.streams = config_.streams;
    read.epsilon = config_.epsilon;
    read.x = work_.x;
    if (!weights.inject.empty()) read.inject = work_.inject;
    ops_.stream_read(read, queue_);
    unwritten_ = false;
}

void Forward::add_ngram(NgramState& state, Mode mode) {
    const NgramWeights& w = *weights_.ngram;
    ops_.ngram_gather({work_.ngram_table, work_.ngram_rows, work_.ngram}, queue_);
    op::NgramMix mix;
    mix.e = work_.ngram;
    mix.residual = work_.residual;
    if (unwritten_) {
        mix.block_out = work_.y;
        mix.block_inject = work_.inject;
    }
    mix.key = w.key;
    mix.value = w.value;
    mix.norm_key = w.norm_key;
    mix.norm_query = w.norm_query;
    mix.norm_conv = w.norm_conv;
    mix.conv = w.conv;
    mix.kernel = config_.ngram.kernel;
    mix.dilation = config_.ngram.size;
    mix.streams = config_.streams;
    mix.epsilon = config_.epsilon;
    mix.history_from = state.now;
    mix.history_to = state.next;
    if (mode.traced) mix.trace = state.trace.first_rows(work_.x.rows);
    ops_.ngram_mix(mix, queue_);
    unwritten_ = false;
}

void Forward::delta_net(const LayerWeights& layer, DeltaLayerState& state, Mode mode) {
    read(layer.attention_read);
    const DeltaNetWeights& w = *layer.delta_net;
    op::DeltaNet op;
    op.x = work_.x;
    op.qkv = w.qkv;
    op.gate = w.gate;
    op.beta_weight = w.beta;
    op.alpha_weight = w.alpha;
    op.conv = w.conv;
    op.decay_rate = w.decay_rate;
    op.decay_bias = w.decay_bias;
    op.norm = w.norm;
    op.out = w.out;
    op.shape = {config_.delta_key_heads, config_.delta_value_heads, config_.delta_head_dim,
                config_.delta_head_dim, config_.delta_kernel};
    op.order = op::HeadOrder::tiled;
    op.form = mode.form;
    op.epsilon = config_.epsilon;
    op.from = state.now;
    op.to = state.next;
    if (mode.traced) {
        const std::int64_t rows = work_.x.rows;
        op.trace = state.trace.first_rows(rows);
    }
    op.y = work_.y;
    ops_.delta_net(op, queue_);
    unwritten_ = true;
}

op::SparseAttention Forward::attention_op(const LayerWeights& layer, AttentionLayerState& state) {
    const AttentionWeights& w = *layer.attention;
    op::SparseAttention op;
    op.x = work_.x;
    op.first = start_.first;
    op.first_at = start_.first_at;
    op.query = w.query;
    op.key = w.key;
    op.value = w.value;
    op.out = w.out;
    op.index_query = w.index_query;
    op.index_key = w.index_key;
    op.query_norm = w.query_norm;
    op.key_norm = w.key_norm;
    op.index_query_norm = w.index_query_norm;
    op.index_key_norm = w.index_key_norm;
    op.inverse_frequency = inverse_frequency_;
    op.shape = {config_.heads,         config_.kv_heads,      config_.head_dim,
                config_.index_heads,   config_.index_dim,     config_.index_ratio,
                config_.blocks_kept(), config_.rotary_dim / 2};
    op.epsilon = config_.epsilon;
    op.cache = state.cache;
    op.raw_from = state.raw_now;
    op.raw_to = state.raw_next;
    return op;
}

void Forward::attention(const LayerWeights& layer, AttentionLayerState& state, bool traced) {
    read(layer.attention_read);
    op::SparseAttention op = attention_op(layer, state);
    if (traced) op.raw_trace = state.raw_trace.first_rows(work_.x.rows);
    op.y = work_.y;
    ops_.sparse_attention(op, queue_);
    unwritten_ = true;
}

void Forward::remember(const LayerWeights& layer, AttentionLayerState& state) {
    read(layer.attention_read);
    ops_.sparse_attention(attention_op(layer, state), queue_);
}

void Forward::experts(const LayerWeights& layer, bool keep_chosen) {
    read(layer.experts_read);
    const ExpertWeights& w = layer.experts;
    op::Experts op;
    op.x = work_.x;
    op.router = w.router;
    op.experts = w.table;
    op.shared_scale = w.shared_scale;
    op.shared_gate = w.shared_gate;
    op.shared_up = w.shared_up;
    op.shared_down = w.shared_down;
    op.active = config_.experts_active;
    op.renormalize = config_.renormalize_experts;
    op.y = work_.y;
    if (keep_chosen) op.chosen = work_.chosen;
    ops_.experts(op, queue_);
    unwritten_ = true;
}

void Forward::stream_mean(MatrixView<float> mean, std::int64_t stride, const std::int64_t* row_at) {
    op::StreamMean op;
    op.residual = work_.residual;
    if (unwritten_) {
        op.block_out = work_.y;
        op.block_inject = work_.inject;
    }
    op.streams = config_.streams;
    op.mean = mean;
    op.mean_stride = stride;
    op.mean_row_at = row_at;
    ops_.stream_mean(op, queue_);
}

void Forward::mix(const HyperConnectionWeights& mixer) { read(mixer); }

void Forward::head(std::int64_t from, const op::Weight& head, MatrixView<float> logits) {
    ops_.output_head({work_.x.rows_from(from, logits.rows), head, logits}, queue_);
}

void Forward::mtp_fuse(VectorView<const std::int32_t> next_tokens) {
    const MtpWeights& w = *weights_.mtp;
    ops_.mtp_fuse({next_tokens, weights_.embedding, work_.residual, w.fuse, w.norm_embedding,
                   w.norm_hidden, config_.streams, config_.epsilon, work_.residual},
                  queue_);
    unwritten_ = false;
}

}  // namespace strata::model
