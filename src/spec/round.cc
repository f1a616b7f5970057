#include "spec/round.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace strata::spec {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

// Takes row after row while each row's token is the one that the next row was run with. Returns how
// many rows were taken.
Result<std::int64_t> take_rows(const model::StepResult& result,
                               std::span<const std::int32_t> window,
                               const std::vector<std::int32_t>& text, const Take& take,
                               RoundResult& round) {
    const auto width = static_cast<std::size_t>(result.logits.cols);
    std::size_t row = 0;
    while (true) {
        STRATA_ASSIGN(round.ended,
                      take({result.logits.row(static_cast<std::int64_t>(row)), width}));
        ++row;
        if (row == window.size() || text.back() != window[row]) break;
        ++round.accepted;
        if (round.ended) break;
    }
    return static_cast<std::int64_t>(row);
}

}  // namespace

Result<RoundResult> run_round(model::Target& target, model::Sequence& sequence, Drafter* drafter,
                              const std::vector<std::int32_t>& text, std::int64_t rows,
                              const Take& take, std::vector<float>& logits) {
    STRATA_CHECK(static_cast<std::int64_t>(text.size()) == sequence.length() + 1);
    STRATA_CHECK(rows >= 1);
    const Clock::time_point start = Clock::now();
    std::vector<std::int32_t> guesses;
    if (drafter != nullptr && rows > 1) {
        STRATA_TRY(drafter->guess(text, rows - 1, guesses));
        STRATA_CHECK(static_cast<std::int64_t>(guesses.size()) < rows);
    }
    std::vector<std::int32_t> window = {text.back()};
    window.insert(window.end(), guesses.begin(), guesses.end());
    const Clock::time_point drafted = Clock::now();

    model::StepRequest request;
    request.tokens = window;
    request.window = true;
    request.logits = model::LogitRows::all;
    STRATA_ASSIGN(const model::StepResult result, target.step(sequence, request));
    RoundResult round;
    round.rows = static_cast<std::int64_t>(window.size());
    const Result<std::int64_t> taken = take_rows(result, window, text, take, round);
    if (!taken.ok()) {
        target.drop(sequence);
        return taken.error();
    }
    const float* last = result.logits.row(*taken - 1);
    logits.assign(last, last + result.logits.cols);
    target.commit(sequence, *taken);
    round.draft_ms = milliseconds(drafted - start);
    round.verify_ms = milliseconds(Clock::now() - drafted);
    return round;
}

}  // namespace strata::spec
