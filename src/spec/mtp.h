// Guesses of the model's own multi-token-prediction layer.
#pragma once

#include "model/target.h"
#include "spec/chain_lengths.h"
#include "spec/drafter.h"

namespace strata::spec {

// `sequence` keeps MTP cells; it and the target outlive the drafter. A chain ends before the first
// guess whose confidence is below `confidence_min`. With a `token_end` only tokens below it are
// guessed (model::MtpChoice).
class MtpDrafter final : public Drafter {
  public:
    MtpDrafter(model::Target& target, model::Sequence& sequence, float confidence_min,
               std::int32_t token_end = 0)
        : target_(target),
          sequence_(sequence),
          confidence_min_(confidence_min),
          token_end_(token_end) {}

    std::string_view name() const override { return "mtp"; }
    Result<Guesses> guess(const GuessRequest& request) override;
    std::int64_t behind() const override { return sequence_.mtp_behind(); }

  private:
    model::Target& target_;
    model::Sequence& sequence_;
    float confidence_min_;
    std::int32_t token_end_;
    ChainLengths lengths_;  // of those that may end early
};

}  // namespace strata::spec
