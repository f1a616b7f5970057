// From logits to the next token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "strata/engine.h"

namespace strata {

// Draws by the Gumbel-max rule: the kept token of largest logit / temperature + g, where the noise
// g depends on seed, position and token alone. A draw is therefore the same whoever asks for it,
// and two distributions that are close mostly give the same token.
class Sampler {
  public:
    // `sampling` as check() accepts it.
    explicit Sampler(const Sampling& sampling) : sampling_(sampling) {}

    // The token at `position` of a sequence whose tokens before it are `before`. Error: logits with
    // a NaN, or without any finite value.
    Result<std::int32_t> pick(std::span<const float> logits, std::span<const std::int32_t> before,
                              std::int64_t position);

  private:
    struct Candidate {
        double logit;
        std::int32_t id;
    };
    void penalize(std::span<const std::int32_t> before);
    void keep_top_k();
    void keep_top_p();
    void keep_min_p();

    Sampling sampling_;
    std::vector<Candidate> candidates_;
};

}  // namespace strata
