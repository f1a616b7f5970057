#include "spec/joined_drafter.h"

#include <algorithm>

namespace strata::spec {

Result<Guesses> JoinedDrafter::guess(const GuessRequest& request) {
    source_ = first_->source();
    STRATA_ASSIGN(Guesses guesses, first_->guess(request));
    if (!guesses.tokens.empty()) return guesses;
    source_ = second_->source();
    GuessRequest asked = request;
    asked.count = std::min(request.count, second_max_);
    return second_->guess(asked);
}

void JoinedDrafter::verified(const Verified& window) {
    first_->verified(window);
    second_->verified(window);
}

void JoinedDrafter::reset() {
    first_->reset();
    second_->reset();
}

void JoinedDrafter::want(const StepRows& rows, model::StepRequest& request) {
    first_->want(rows, request);
    second_->want(rows, request);
}

Status JoinedDrafter::keep(std::int64_t first, std::span<const std::int32_t> tokens,
                           const model::StepResult& result) {
    STRATA_TRY(first_->keep(first, tokens, result));
    return second_->keep(first, tokens, result);
}

void JoinedDrafter::restore(std::string_view saved) {
    first_->reset();
    second_->restore(saved);
}

}  // namespace strata::spec
