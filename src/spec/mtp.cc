#include "spec/mtp.h"

#include <utility>

namespace strata::spec {

Result<Guesses> MtpDrafter::guess(const GuessRequest& request) {
    model::MtpChoice choice;
    choice.go_on = request.go_on;
    std::vector<std::int32_t> before;
    if (request.draw != nullptr) {
        before.assign(request.text.begin(), request.text.end());
        choice.pick = [&](std::span<const float> logits, std::span<const std::int32_t> chain) {
            before.resize(request.text.size());
            before.insert(before.end(), chain.begin(), chain.end());
            return request.draw->draw(logits, before);
        };
    }
    STRATA_ASSIGN(model::MtpDraft draft, target_.draft(sequence_, request.text.back(),
                                                       request.count, confidence_min_, choice));
    return Guesses{std::move(draft.path), std::move(draft.confidence), draft.computed};
}

}  // namespace strata::spec
