#include "spec/mtp.h"

#include <utility>

namespace strata::spec {

Result<Guesses> MtpDrafter::guess(const GuessRequest& request) {
    model::MtpChoice choice;
    choice.go_on = request.go_on;
    choice.token_end = token_end_;
    Continued before(request.draw == nullptr ? std::span<const std::int32_t>() : request.text);
    if (request.draw != nullptr) {
        choice.pick = [&](std::span<const float> logits, std::span<const std::int32_t> tokens,
                          std::span<const std::int32_t> chain) {
            return tokens.empty() ? request.draw->draw(logits, before.by(chain))
                                  : request.draw->draw_among(tokens, logits, before.by(chain));
        };
    }
    if (request.draw != nullptr && request.draw->draws(request.text) != nullptr) {
        choice.draws = [&](std::span<const std::int32_t> chain) {
            return request.draw->draws(before.by(chain));
        };
        choice.pick_of = [&](const model::RowPick& picked, std::span<const std::int32_t> chain) {
            return request.draw->draw_of(picked, before.by(chain));
        };
    }
    const bool may_end = request.go_on || confidence_min_ > 0;
    if (may_end) choice.at_once = lengths_.at_once(request.count);
    STRATA_ASSIGN(model::MtpDraft draft, target_.draft(sequence_, request.text.back(),
                                                       request.count, confidence_min_, choice));
    if (may_end) lengths_.see(draft.judged, request.count);
    return Guesses{std::move(draft.path), std::move(draft.confidence), draft.computed};
}

}  // namespace strata::spec
