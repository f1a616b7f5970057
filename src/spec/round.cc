#include "spec/round.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/check.h"

namespace strata::spec {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

// Takes one row, of which the device may have said all: then it has a confidence.
Result<bool> take_row(const RoundParts& parts, const model::StepResult& result, std::int64_t row,
                      const Take& take) {
    const auto width = static_cast<std::size_t>(result.logits.cols);
    if (result.picked.empty()) return take({result.logits.row(row), width});
    const model::RowPick& pick = result.picked[static_cast<std::size_t>(row)];
    if (!std::isnan(pick.largest.confidence)) {
        STRATA_ASSIGN(const std::optional<bool> ended, parts.take_pick(pick));
        if (ended) return *ended;
    }
    return take(parts.target.fetch_logits(row));
}

// Takes row after row while each row's token is the one that the next row was run with. Returns how
// many rows were taken.
Result<std::int64_t> take_rows(const RoundParts& parts, const model::StepResult& result,
                               std::span<const std::int32_t> window,
                               const std::vector<std::int32_t>& text, const Take& take,
                               RoundResult& round) {
    std::size_t row = 0;
    while (true) {
        STRATA_ASSIGN(round.ended, take_row(parts, result, static_cast<std::int64_t>(row), take));
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
    request.accept = true;
    if (parts.ask) parts.ask(text, window, request);
    logits.clear();
    round.window.rows = static_cast<std::int64_t>(window.size());
    const std::int64_t first = sequence.length();
    if (parts.follower != nullptr) {
        parts.follower->want({first, round.window.rows, first + round.window.rows}, request);
    }
    STRATA_ASSIGN(const model::StepResult result, parts.target.step(sequence, request));
    const Result<std::int64_t> taken = take_rows(parts, result, window, text, take, round);
    Status kept = taken.ok() ? Status(Ok{}) : Status(taken.error());
    if (kept.ok() && parts.follower != nullptr) {
        const auto tokens = std::span(window).first(static_cast<std::size_t>(*taken));
        kept = parts.follower->keep(first, tokens, result);
    }
    if (!kept.ok()) {
        parts.target.drop(sequence);
        return kept.error();
    }
    round.last_row = *taken - 1;
    if (result.picked.empty()) {
        const float* last = result.logits.row(round.last_row);
        logits.assign(last, last + result.logits.cols);
    }
    parts.target.commit(sequence, *taken);
    round.window.draft_ms = milliseconds(drafted - start);
    round.window.verify_ms = milliseconds(Clock::now() - drafted);
    if (parts.drafter != nullptr && rows > 1) parts.drafter->verified(round.window);
    return round;
}

}  // namespace strata::spec
