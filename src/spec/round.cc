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
        ++round.window.accepted;
        if (round.ended) break;
    }
    return static_cast<std::int64_t>(row);
}

}  // namespace

Result<RoundResult> run_round(const RoundParts& parts, const std::vector<std::int32_t>& text,
                              std::int64_t rows, const Take& take, std::vector<float>& logits) {
    model::Sequence& sequence = parts.sequence;
    STRATA_CHECK(static_cast<std::int64_t>(text.size()) == sequence.length() + 1);
    STRATA_CHECK(rows >= 1);
    const Clock::time_point start = Clock::now();
    RoundResult round;
    std::vector<std::int32_t> window = {text.back()};
    if (parts.drafter != nullptr && rows > 1) {
        STRATA_ASSIGN(const Guesses guesses,
                      parts.drafter->guess({text, rows - 1, parts.draw, {}}));
        STRATA_CHECK(static_cast<std::int64_t>(guesses.tokens.size()) < rows);
        round.window.source = parts.drafter->source();
        window.insert(window.end(), guesses.tokens.begin(), guesses.tokens.end());
    }
    const Clock::time_point drafted = Clock::now();

    model::StepRequest request;
    request.tokens = window;
    request.window = true;
    request.logits = model::LogitRows::all;
    round.window.rows = static_cast<std::int64_t>(window.size());
    const std::int64_t first = sequence.length();
    if (parts.follower != nullptr) {
        parts.follower->want({first, round.window.rows, first + round.window.rows}, request);
    }
    STRATA_ASSIGN(const model::StepResult result, parts.target.step(sequence, request));
    const Result<std::int64_t> taken = take_rows(result, window, text, take, round);
    Status kept = taken.ok() ? Status(Ok{}) : Status(taken.error());
    if (kept.ok() && parts.follower != nullptr) {
        const auto tokens = std::span(window).first(static_cast<std::size_t>(*taken));
        kept = parts.follower->keep(first, tokens, result);
    }
    if (!kept.ok()) {
        parts.target.drop(sequence);
        return kept.error();
    }
    const float* last = result.logits.row(*taken - 1);
    logits.assign(last, last + result.logits.cols);
    parts.target.commit(sequence, *taken);
    round.window.draft_ms = milliseconds(drafted - start);
    round.window.verify_ms = milliseconds(Clock::now() - drafted);
    if (parts.drafter != nullptr && rows > 1) parts.drafter->verified(round.window);
    return round;
}

}  // namespace strata::spec
