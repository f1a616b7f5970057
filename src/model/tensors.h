// Every tensor of a qwen4exp GGUF file: name, shape and class, once. Binders and converters look up
// by these names and list none of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace strata::model {

// What a tensor is for; choosing types and summing sizes goes by class.
enum class TensorClass : std::uint8_t {
    embedding,
    head,
    expert_gate,  // gate and up
    expert_down,
    shared_expert,
    hyper_connection,
    delta_net,
    attention,
    router,
    ngram_table,
    ngram,
    mtp,   // what only the MTP layer has; its block's other tensors keep their own class
    small  // norms, convolutions, biases: F32 in every file
};

std::string_view class_name(TensorClass c);

// What the values stand for, where they are made up: random models need plausible ones.
enum class TensorRole : std::uint8_t { matrix, gain, convolution, decay_rate, decay_bias };

// Which shapes a file may give the tensor.
enum class Presence : std::uint8_t {
    required,
    optional,
    // ffn_gate_exps and ffn_up_exps, or ffn_gate_up_exps in their place
    separate_or_fused
};

struct TensorSpec {
    std::string name;
    std::vector<std::uint64_t> shape;  // GGUF order: row width first
    TensorClass tensor_class = TensorClass::small;
    TensorRole role = TensorRole::matrix;
    Presence presence = Presence::required;
    // The rows may be more than shape says (the n-gram table is padded).
    bool rows_at_least = false;
    std::int64_t block = -1;  // -1: outside blocks
    bool mtp = false;         // in the MTP layer's block
};

// In the MTP layer's block, each where the file has it: a head of its own, and the token of each of
// its rows, where they are not all (model/draft_rows.h).
inline constexpr std::string_view kMtpHeadName = "nextn.shared_head_head.weight";
inline constexpr std::string_view kMtpMapName = "nextn.d2t";

// In a block: gate and up of its experts in one, each expert's gate rows before its up rows.
inline constexpr std::string_view kFusedExpertsName = "ffn_gate_up_exps.weight";

// "blk.N." and the suffix.
std::string block_name(std::int64_t block, std::string_view suffix);

// In the order in which Strata writes them.
std::vector<TensorSpec> tensor_list(const Config& config);

// Where a file has what a spec asks for: a tensor of its own, or a share of one that has several.
struct Held {
    const gguf::Tensor* tensor = nullptr;  // null: nowhere
    int shares = 1;                        // as many specs as have an equal part of it
};

// A tensor of another shape than the spec's is held too.
Held find_held(const gguf::File& file, const TensorSpec& spec);

// What `file` lacks or has in another shape, one sentence each; empty when the model is complete.
// `config` is what config_from_gguf read of the same file.
std::vector<std::string> missing_tensors(const Config& config, const gguf::File& file);
// Of the MTP layer's block alone.
std::vector<std::string> missing_mtp_tensors(const Config& config, const gguf::File& file);

}  // namespace strata::model
