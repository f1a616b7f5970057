// The numbers of one DFlash2 draft.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "gguf/reader.h"
#include "model/config.h"
#include "op/dflash_select.h"

namespace strata::dflash {

inline constexpr std::int64_t kBlockMax = 64;
inline constexpr std::int64_t kCandidatesMax = op::kDflashCandidatesMax;
inline constexpr std::int64_t kTargetLayersMax = 256;

struct Config {
    std::int64_t layers = 0;
    std::int64_t hidden = 0;  // the target's
    std::int64_t feed_width = 0;
    std::int64_t vocabulary = 0;  // the target's: rows of the codebooks
    std::int64_t context = 0;     // trained length
    float epsilon = 0;

    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    int rotary_dim = 0;
    double rope_base = 0;

    std::int64_t window = 0;           // positions that a sliding layer sees; 0: no layer slides
    std::vector<std::uint8_t> slides;  // one a layer

    std::int64_t block_size = 0;  // rows, the anchor's included
    std::int64_t mask_token = 0;
    std::vector<std::int64_t> target_layers;  // after which features are taken, counted from 0

    int conv_taps = 0;
    int conv_group = 0;
    int selector_rank = 0;
    int candidates = 0;  // selector_top_k

    std::int64_t query_width() const { return std::int64_t{heads} * head_dim; }
    std::int64_t kv_width() const { return std::int64_t{kv_heads} * head_dim; }
    std::int64_t feature_width() const {
        return static_cast<std::int64_t>(target_layers.size()) * hidden;
    }
    std::int64_t conv_rows() const { return 2 * conv_taps * (hidden / conv_group); }
    // Of one layer; 0 where it sees everything.
    std::int64_t layer_window(std::int64_t layer) const {
        return slides[static_cast<std::size_t>(layer)] != 0 ? window : 0;
    }
};

// The configuration that a GGUF file of architecture dflash describes. Errors name the key, the
// value found and the value wanted: another kind of draft, a key missing or of the wrong type, a
// number out of range, what this version does not compute, numbers that contradict each other.
Result<Config> config_from_gguf(const gguf::File& file);

// Every relation between the numbers that the drafter relies on. config_from_gguf has called it.
Status validate(const Config& config);

// The layers of a target of `layers` that published drafts take features after:
// round(linspace(5, layers - 3, 5)), and where that does not give five distinct ones, as many as
// there are to five, spread evenly from the first to the last.
std::vector<std::int64_t> spread_layers(std::int64_t layers);

// Error: what of the draft does not fit the target.
Status check_target(const Config& config, const model::Config& target);

}  // namespace strata::dflash
