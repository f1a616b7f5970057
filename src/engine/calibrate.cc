// What windows and guesses cost here, measured before the first text that `auto` drafts for: a text
// of a dozen tokens is over before it could be measured in it.
#include <algorithm>
#include <array>
#include <limits>

#include "engine/parts.h"

namespace strata {
namespace {

// A window that is timed, and of how many guesses a chain and a block are that are timed after it.
struct Timed {
    std::int64_t rows;
    std::int64_t chain;
    std::int64_t block;
};
constexpr std::array<Timed, 4> kWindows = {{{8, 0, 0}, {4, 3, 7}, {2, 1, 3}, {1, 0, 0}}};
// How often; the shortest time of each counts.
constexpr int kRepeats = 3;
constexpr std::int64_t kContextLeast = 64;  // tokens
// Where a row takes longer, starting would; texts of so large a model tell soon enough.
constexpr double kRowMsMost = 20;

std::int64_t guesses_after(const Timed& window, const spec::NeuralPrior& prior) {
    return std::min(prior.block ? window.block : window.chain, prior.count_max);
}

class Calibration {
  public:
    Calibration(model::Target& target, model::Sequence& sequence, spec::Policy& policy,
                std::span<const std::unique_ptr<spec::Drafter>> drafters,
                std::span<const spec::NeuralPrior> priors)
        : target_(target),
          sequence_(sequence),
          policy_(policy),
          drafters_(drafters),
          priors_(priors),
          draft_ms_(kWindows.size() * drafters.size(), kNever) {
        window_ms_.fill(kNever);
    }

    Status run() {
        for (int i = 0; i < kRepeats; ++i) {
            for (std::size_t w = 0; w < kWindows.size(); ++w) STRATA_TRY(time_window(w));
            if (window_ms_.back() > kRowMsMost) return Ok{};
        }
        for (std::size_t w = 0; w < kWindows.size(); ++w) {
            policy_.calibrate_window(kWindows[w].rows, window_ms_[w]);
            for (std::size_t d = 0; d < drafters_.size(); ++d) {
                const std::int64_t count = guesses_after(kWindows[w], priors_[d]);
                if (count > 0) policy_.calibrate_draft(d, count, draft_ms(w, d));
            }
        }
        return Ok{};
    }

  private:
    static constexpr double kNever = std::numeric_limits<double>::infinity();

    Status time_window(std::size_t w) {
        const std::int64_t rows = kWindows[w].rows;
        const std::int64_t first = sequence_.length();
        grow(first + rows + 1);
        const auto start = std::chrono::steady_clock::now();
        model::StepRequest request;
        request.tokens = std::span(text_).subspan(static_cast<std::size_t>(first),
                                                  static_cast<std::size_t>(rows));
        request.window = true;
        request.logits = model::LogitRows::all;
        for (const auto& one : drafters_) one->want({first, rows, first + rows}, request);
        STRATA_ASSIGN(const model::StepResult result, target_.step(sequence_, request));
        for (const auto& one : drafters_) STRATA_TRY(one->keep(first, request.tokens, result));
        target_.commit(sequence_, rows);
        window_ms_[w] = std::min(window_ms_[w], milliseconds_since(start));
        for (std::size_t d = 0; d < drafters_.size(); ++d) {
            const std::int64_t count = guesses_after(kWindows[w], priors_[d]);
            if (count == 0) continue;
            const auto from = std::chrono::steady_clock::now();
            STRATA_TRY(drafters_[d]->guess({text_, count, nullptr, {}}));
            draft_ms(w, d) = std::min(draft_ms(w, d), milliseconds_since(from));
        }
        return Ok{};
    }

    // Tokens of no meaning, which are routed to many experts as those of a text are.
    void grow(std::int64_t length) {
        constexpr std::int64_t kStep = 7919;  // a prime, so that no token comes again soon
        while (std::ssize(text_) < length) {
            const std::int64_t token = std::ssize(text_) * kStep % target_.config().vocabulary;
            text_.push_back(static_cast<std::int32_t>(token));
        }
    }

    double& draft_ms(std::size_t window, std::size_t drafter) {
        return draft_ms_[window * drafters_.size() + drafter];
    }

    model::Target& target_;
    model::Sequence& sequence_;
    spec::Policy& policy_;
    std::span<const std::unique_ptr<spec::Drafter>> drafters_;
    std::span<const spec::NeuralPrior> priors_;
    std::vector<std::int32_t> text_;
    std::array<double, kWindows.size()> window_ms_;
    std::vector<double> draft_ms_;  // [window, drafter]
};

}  // namespace

Status Session::State::calibrate(spec::Policy& policy,
                                 std::span<const std::unique_ptr<spec::Drafter>> drafters,
                                 std::span<const spec::NeuralPrior> priors) {
    if (sequence.context() < kContextLeast) return Ok{};
    STRATA_TRY(Calibration(*parts.target, sequence, policy, drafters, priors).run());
    parts.target->reset(sequence);
    for (const auto& one : drafters) one->reset();
    return Ok{};
}

}  // namespace strata
