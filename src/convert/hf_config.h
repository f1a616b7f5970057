// What a checkpoint's config.json says of the model (model.md 1.1 and 4).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/config.h"

namespace strata::convert {

struct HfConfig {
    // Complete except for ngram.{multipliers, vocabulary, offsets}: the checkpoint may store them.
    model::Config model;
    // From which the hash's constants follow where the checkpoint does not store them.
    std::optional<std::uint64_t> ngram_base;
    std::uint64_t seed = 0;
    // True: the output head is the embedding, and the checkpoint's lm_head is not read.
    bool tied_embeddings = false;
    // Without one the tensors say whether there is an MTP layer; the count is then in model.
    bool mtp_stated = false;
    std::optional<std::int64_t> image_token;
    // config.json's own end tokens (of the text model), the first is the n-gram table's.
    std::vector<std::int64_t> end_tokens;
};

// Reads `path`, nested (text_config) or flat. Unknown keys are ignored. Errors: a configuration of
// another architecture; a key missing or of the wrong type; a size out of range; a value of a known
// key that is not computed; sizes that contradict each other.
Result<HfConfig> read_config(const std::string& path);

}  // namespace strata::convert
