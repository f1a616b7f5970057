// From logits to the next token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/answer_rule.h"
#include "model/target.h"
#include "spec/drafter.h"
#include "strata/engine.h"

namespace strata {

// Draws by the Gumbel-max rule: the kept token of largest logit / temperature + g, where the noise
// g depends on seed, position and token alone. A draw is therefore the same whoever asks for it,
// and two distributions that are close mostly give the same token.
class Sampler final : public spec::Draw {
  public:
    // `sampling` as check() accepts it.
    explicit Sampler(const Sampling& sampling) : sampling_(sampling) {}

    // The token at `position` of a sequence whose tokens before it are `before`, as if there were
    // no others than those that `rule` allows; null: all are. While a rule does not hold the token
    // is picked from all, and only where that one is not allowed as if there were no others than
    // those that are. Errors: logits with a NaN, or without any finite value; the rule's.
    Result<std::int32_t> pick(std::span<const float> logits, std::span<const std::int32_t> before,
                              std::int64_t position, AnswerRule* rule = nullptr);

    // Whether it takes the largest logit, whatever else is asked.
    bool plain() const;

    // Asks for what pick_of() needs of a window's rows (spec::Ask). What the request points to is
    // valid until the next call.
    void ask(std::span<const std::int32_t> text, std::span<const std::int32_t> window,
             model::StepRequest& request);
    const model::Draws* draws(std::span<const std::int32_t> before) override;
    const model::Draws* draws_along(std::span<const std::int32_t> before,
                                    std::int64_t count) override;
    // As pick(), from what was picked: the very token that pick() would give, or nothing where what
    // was drawn does not tell.
    std::optional<std::int32_t> pick_of(const model::RowPick& picked, std::int64_t position,
                                        const AnswerRule* rule = nullptr);

    // Draws as pick() does at the position after `before`, from a drafter's logits.
    Result<std::int32_t> draw(std::span<const float> logits,
                              std::span<const std::int32_t> before) override {
        return pick(logits, before, static_cast<std::int64_t>(before.size()));
    }
    Result<std::int32_t> draw_among(std::span<const std::int32_t> tokens,
                                    std::span<const float> logits,
                                    std::span<const std::int32_t> before) override;
    Result<std::optional<std::int32_t>> draw_of(const model::RowPick& picked,
                                                std::span<const std::int32_t> before) override {
        return pick_of(picked, static_cast<std::int64_t>(before.size()));
    }

  private:
    struct Candidate {
        double logit;
        std::int32_t id;
    };
    // Whether a token that was picked from all is allowed, and where the rule holds sure to be what
    // would be picked from the allowed ones alone.
    bool stands(const model::RowPick& picked, std::int32_t token, const AnswerRule& rule) const;
    Result<std::int32_t> pick_any(std::span<const float> logits,
                                  std::span<const std::int32_t> before, std::int64_t position);
    Result<std::int32_t> pick_allowed(std::span<const float> logits,
                                      std::span<const std::int32_t> before, std::int64_t position,
                                      AnswerRule& rule);
    Result<std::int32_t> pick_candidate(std::span<const std::int32_t> before,
                                        std::int64_t position);
    bool penalizes() const;
    // Tells draws_ of a window's rows; false: there is nothing to draw, or all logits are wanted.
    bool tell_draws(std::span<const std::int32_t> text, std::span<const std::int32_t> window);
    // Of the rule at the first row after a text, which no token joins or leaves.
    void tell_rule(std::span<const std::int32_t> text);
    // Of what a window's guesses change; false: penalties are of more tokens than it holds.
    bool tell_guesses(std::span<const std::int32_t> text, std::span<const std::int32_t> window);
    // The place of the token that is no longer penalized for once one stands at `length`.
    std::optional<std::int64_t> out_of_reach(std::int64_t length) const;
    std::optional<std::int32_t> pick_drawn(std::span<const op::Drawn> drawn, std::int64_t position);
    // The kept one of largest logit and noise; logits are as keep_top_p() says.
    std::int32_t draw_kept(std::int64_t position);
    // Calls use(token, count) for each token that is penalized, in no order.
    template <typename Use>
    void for_each_penalized(std::span<const std::int32_t> before, const Use& use);
    double penalized(double logit, std::int64_t count) const;
    void penalize(std::span<const std::int32_t> before);
    Result<std::int32_t> pick_largest(std::span<const float> logits,
                                      std::span<const std::int32_t> before, std::int64_t position);
    void keep_top_k();
    void keep_top_p();
    void keep_min_p();

    Sampling sampling_;
    std::vector<Candidate> candidates_;
    std::vector<float> unpenalized_;    // logits, those of penalized tokens -infinity
    std::vector<std::int32_t> counts_;  // of each token, 0 between calls
    std::vector<std::int32_t> counted_;
    model::Draws draws_;
};

}  // namespace strata
