// Models of random weights, for benches and tests.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "strata/result.h"
#include "strata/types.h"

namespace strata {

// What is not given is the preset's.
struct SynthRequest : TypeNames {
    std::string preset;  // "flash-next" or "tiny"
    std::string output;
    // Where to write a DFlash2 draft for the model too, of the preset's geometry, its matrices in
    // the type that `dense` names. Empty: none.
    std::string dflash;
    std::optional<std::int64_t> layers;
    std::optional<std::int64_t> hidden;
    std::optional<std::int64_t> vocabulary;
    std::optional<std::int64_t> context;
    std::optional<std::int64_t> heads;
    std::optional<std::int64_t> kv_heads;
    std::optional<std::int64_t> head_dim;
    std::optional<std::int64_t> delta_key_heads;
    std::optional<std::int64_t> delta_value_heads;
    std::optional<std::int64_t> experts;
    std::optional<std::int64_t> experts_active;
    std::optional<std::int64_t> expert_hidden;
    std::optional<std::int64_t> shared_hidden;
    std::optional<std::int64_t> stream_rank;
    std::optional<std::int64_t> index_budget;  // rows that sparse attention keeps
    // Rows of the n-gram table that each hash head has at least; the preset's, scaled as
    // `vocabulary` is, where it is not given.
    std::optional<std::int64_t> table_rows;
    bool mtp = false;  // with an MTP layer, whatever the preset has
    std::uint64_t seed = 1;
};

// Bytes written and in all, of all files. False ends the work with an error.
using SynthProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

// Writes request.output, and then request.dflash, each whole or not at all, a few rows at a time:
// memory does not grow with the model. Where the draft's file cannot be written, the model stays;
// what is wrong with the request is found before either is begun. The model's vocabulary is one
// token a byte and a few control tokens, where it has room for them. Errors name the size that is
// out of range or that contradicts another, the format that a row width cannot hold, the file, one
// name for both files.
Status synthesize_model(const SynthRequest& request, const SynthProgress& progress = {});

}  // namespace strata
