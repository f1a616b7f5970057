// The numbers of one qwen4_exp model. Sizes are never literals anywhere else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/reader.h"
#include "model/limits.h"

namespace strata::model {

enum class LayerKind : std::uint8_t { delta_net, sparse_attention };

// The n-gram table's hash (model.md 1.2 and 2.8).
struct NgramConfig {
    std::int64_t layer = -1;  // 0-based; -1: the model has no table
    int size = 0;             // longest n-gram: 3 hashes 2-grams and 3-grams
    int heads_per_ngram = 0;
    int kernel = 0;  // taps of the convolution; its dilation is `size`
    std::int64_t end_token = 0;
    std::int64_t row_width = 0;
    std::vector<std::uint64_t> multipliers;  // `size` of them
    std::vector<std::uint64_t> vocabulary;   // one a head
    std::vector<std::uint64_t> offsets;      // one a head: its first row

    int heads() const { return heads_per_ngram * (size - 1); }
    std::int64_t history_rows() const { return std::int64_t{kernel - 1} * size; }
    bool present() const { return layer >= 0; }
};

struct Config {
    std::int64_t layers = 0;  // without MTP layers
    std::int64_t mtp_layers = 0;
    std::int64_t hidden = 0;
    std::int64_t vocabulary = 0;  // rows of the embedding
    std::int64_t context = 0;     // trained length
    float epsilon = 0;

    int streams = 0;
    std::int64_t stream_rank = 0;

    std::vector<LayerKind> kinds;  // `layers` of them

    int delta_key_heads = 0;
    int delta_value_heads = 0;
    int delta_head_dim = 0;  // of keys and values
    int delta_kernel = 0;

    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    int rotary_dim = 0;
    double rope_base = 0;
    std::vector<std::int32_t> rope_sections;
    int index_heads = 0;
    int index_dim = 0;
    int index_budget = 0;  // rows; a multiple of index_ratio
    int index_ratio = 0;

    int experts = 0;
    int experts_active = 0;
    std::int64_t expert_hidden = 0;
    std::int64_t shared_hidden = 0;
    bool renormalize_experts = true;

    NgramConfig ngram;

    std::int64_t delta_channels() const {
        return std::int64_t{2} * delta_key_heads * delta_head_dim + delta_value_width();
    }
    std::int64_t delta_value_width() const {
        return std::int64_t{delta_value_heads} * delta_head_dim;
    }
    std::int64_t stream_width() const { return streams * hidden; }
    std::int64_t query_width() const { return std::int64_t{heads} * head_dim; }
    std::int64_t kv_width() const { return std::int64_t{kv_heads} * head_dim; }
    int blocks_kept() const { return index_budget / index_ratio; }
};

// The configuration that a GGUF file of architecture qwen4exp describes. Errors name the key, the
// value found and the value wanted: another architecture, a key missing or of the wrong type, a
// number out of range, numbers that contradict each other (validate). The vocabulary is the rows of
// the embedding; where a file need not have one, `vocabulary` stands for it.
Result<Config> config_from_gguf(const gguf::File& file, std::int64_t vocabulary = 0);

// Error: what of an MTP layer, in a file of its own, does not fit the target that it is for.
Status check_mtp_layer(const Config& layer, const Config& target);

// The configuration of a file that an MTP layer for `target` is taken from: of the layer alone, or
// of a model. Errors: as config_from_gguf and check_mtp_layer, the latter's first. Its n-gram block
// is left out: a layer has none.
Result<Config> mtp_layer_from_gguf(const gguf::File& file, const Config& target);

// Every relation between the numbers that the engine relies on. config_from_gguf has called it.
Status validate(const Config& config);

}  // namespace strata::model
