// Steps of a target whose queue records: all work between the tokens and the logits is submitted as
// one, and what varies from step to step is read from memory.
#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "model/recorded.h"
#include "model/target.h"

namespace strata::model {

// Recorded work is bounded by where its rows may stand; below this it is all the same.
constexpr std::int64_t kBoundLeast = 4096;

std::int64_t bound_of(std::int64_t end, std::int64_t context) {
    const auto power = std::bit_ceil(static_cast<std::uint64_t>(end));
    return std::min(context, std::max(kBoundLeast, static_cast<std::int64_t>(power)));
}

bool Target::is_recorded(const StepRequest& request) const {
    const bool fit = request.feature_layers.empty() || !request.features_to.rows.empty() ||
                     !features_of(request).empty();
    return queue_->records() && request.window && !request.chosen &&
           request.logit_sink == nullptr && fit;
}

void Target::tell_pass(std::int64_t first, std::int64_t feature_row,
                       std::span<const std::int32_t> tokens, std::span<const std::int32_t> ends) {
    ToldPass told{.first = first, .feature_row = feature_row, .tokens = {}, .ends = {}};
    STRATA_CHECK(tokens.size() <= told.tokens.size());
    std::copy(tokens.begin(), tokens.end(), told.tokens.begin());
    told.ends.fill(-1);
    std::copy_n(ends.begin(), std::min(ends.size(), told.ends.size()), told.ends.begin());
    device_->upload(*queue_, reinterpret_cast<std::byte*>(at_.told_pass),
                    std::as_bytes(std::span(&told, 1)));
}

void Target::submit_step(Sequence& sequence, const StepRequest& request, std::int64_t bound) {
    const auto rows = static_cast<std::int64_t>(request.tokens.size());
    Workspace work = at_.work.first_rows(rows);
    work.tokens = {at_.told_pass->tokens.data(), rows};
    Forward pass = forward(ops_, work, {bound - rows, &at_.told_pass->first});
    // Cannot fail: the n-gram rows are there.
    static_cast<void>(run_layers(sequence, pass, request, true));
    if (is_mixed(sequence, request)) pass.mix(weights_.mixer);
    if (request.logits == LogitRows::none) return;
    const std::int64_t from = request.logits == LogitRows::all ? 0 : rows - 1;
    const MatrixView<float> logits{at_.logits.data, rows - from, weights_.head.rows};
    pass.head(from, weights_.head, logits);
    if (request.picks == Picks::none) return;
    if (request.picks == Picks::draw) {
        submit_draw(logits, {}, request.draws->filters());
    } else {
        op::Pick pick;
        pick.logits = logits;
        pick.picked = {at_.picked.data, logits.rows};
        ops_.pick(pick, *queue_);
    }
    if (accepts(request)) submit_accept(sequence, request);
}

// Of one row there is nothing to choose.
bool Target::accepts(const StepRequest& request) const {
    return request.accept && is_recorded(request) && request.picks != Picks::none &&
           request.logits == LogitRows::all && request.tokens.size() > 1;
}

void Target::submit_accept(Sequence& sequence, const StepRequest& request) {
    static_assert(kWindowRowsMax <= op::kAcceptRowsMax);
    const auto rows = static_cast<std::int64_t>(request.tokens.size());
    op::Accept accept;
    accept.window = {at_.told_pass->tokens.data(), rows};
    accept.ends = {at_.told_pass->ends.data(), op::kEndTokensMax};
    accept.rows = at_.accepted;
    if (request.picks == Picks::draw) {
        accept.drawn = at_.drawn.first_rows(rows);
    } else {
        accept.picked = {at_.picked.data, rows};
    }
    ops_.accept(accept, *queue_);
    sequence.replay({rows, at_.accepted}, ops_, *queue_);
}

// From what it was told and what it picked, of which the host has both: it need not be fetched.
std::int64_t Target::accepted(const StepRequest& request) const {
    const auto rows = static_cast<std::int64_t>(request.tokens.size());
    const std::size_t ends = std::min(request.ends.size(), std::size_t{op::kEndTokensMax});
    op::Accept accept;
    accept.window = {request.tokens.data(), rows};
    accept.ends = {request.ends.data(), static_cast<std::int64_t>(ends)};
    if (request.picks == Picks::draw) {
        accept.drawn = {drawn_.data(), rows, at_.drawn.cols};
    } else {
        accept.picked = {picked_.data(), rows};
    }
    return accept.count();
}

Status Target::run_recorded(Sequence& sequence, const StepRequest& request) {
    const auto rows = static_cast<std::int64_t>(request.tokens.size());
    if (request.picks == Picks::draw) tell_draws(*request.draws);
    STRATA_TRY(bring_ngram_rows());
    const std::int64_t bound = bound_of(sequence.length() + rows, sequence.context());
    const MatrixView<float>& place = request.features_to.rows;
    key_ = {static_cast<std::int64_t>(Recorded::step),
            rows,
            bound,
            static_cast<std::int64_t>(request.logits),
            is_mixed(sequence, request) ? 1 : 0,
            static_cast<std::int64_t>(request.picks),
            request.picks == Picks::draw ? request.draws->filters() : 0,
            accepts(request) ? 1 : 0,
            static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(place.data))};
    key_.insert(key_.end(), request.feature_layers.begin(), request.feature_layers.end());
    sequence.mark_trunk(key_);
    queue_->run(key_, [&] { submit_step(sequence, request, bound); });

    const MatrixView<float> features = place.empty() ? features_of(request) : MatrixView<float>{};
    features_.resize(static_cast<std::size_t>(features.size()));
    if (!features_.empty()) {
        device_->download(*queue_, std::as_writable_bytes(std::span(features_)),
                          reinterpret_cast<const std::byte*>(features.data));
    }
    take_residual(request.residual ? rows : 0);
    const std::int64_t wanted = request.logits == LogitRows::none  ? 0
                                : request.logits == LogitRows::all ? rows
                                                                   : 1;
    if (request.picks == Picks::draw) {
        take_draws(wanted);
        return Ok{};
    }
    if (request.picks != Picks::none) {
        take_picks(wanted);
        return Ok{};
    }
    logits_.resize(static_cast<std::size_t>(wanted * config_.vocabulary));
    device_->download(*queue_, std::as_writable_bytes(std::span(logits_)),
                      reinterpret_cast<const std::byte*>(at_.logits.data));
    return Ok{};
}

void Target::tell_draws(const Draws& draws) {
    static_assert(kWindowRowsMax <= op::kDrawRowsMax);
    const auto rule = std::as_bytes(std::span(&draws.rule, 1));
    const auto penalized = std::as_bytes(std::span(draws.penalized));
    STRATA_CHECK(std::ssize(draws.penalized) == draws.rule.penalized &&
                 draws.rule.penalized <= op::kPenalizedMax);
    told_.assign(rule.begin(), rule.end());
    told_.insert(told_.end(), penalized.begin(), penalized.end());
    device_->upload(*queue_, reinterpret_cast<std::byte*>(at_.draw_rule), told_);
}

void Target::submit_draw(MatrixView<const float> logits,
                         VectorView<const std::int64_t> token_of_row, int filters) {
    ops_.draw({.logits = logits,
               .token_of_row = token_of_row,
               .rule = at_.draw_rule,
               .penalized = {at_.penalized, op::kPenalizedMax},
               .filters = filters,
               .drawn = at_.drawn.first_rows(logits.rows)},
              *queue_);
}

void Target::take_picks(std::int64_t rows) {
    logits_.clear();
    logits_on_device_ = rows;
    picked_.resize(static_cast<std::size_t>(rows));
    device_->download(*queue_, std::as_writable_bytes(std::span(picked_)),
                      reinterpret_cast<const std::byte*>(at_.picked.data));
    for (const op::Picked& largest : picked_) row_picks_.push_back({largest, {}});
}

void Target::take_drawn(std::int64_t rows) {
    drawn_.resize(static_cast<std::size_t>(rows * at_.drawn.cols));
    device_->download(*queue_, std::as_writable_bytes(std::span(drawn_)),
                      reinterpret_cast<const std::byte*>(at_.drawn.data));
}

void Target::take_draws(std::int64_t rows) {
    constexpr std::size_t kListed = 1 + op::kDrawnMax;
    logits_.clear();
    logits_on_device_ = rows;
    take_drawn(rows);
    for (std::size_t t = 0; t < static_cast<std::size_t>(rows); ++t) {
        const auto drawn = std::span(drawn_).subspan(t * kListed, kListed);
        // No confidence is known: a number says that something was drawn.
        const bool told = drawn[0].token >= 0;
        const float confidence = told ? 1 : std::numeric_limits<float>::quiet_NaN();
        row_picks_.push_back({{told ? drawn[0].token : 0, confidence}, drawn});
    }
}

void Target::commit_state(Sequence& sequence, std::int64_t rows) {
    // Before a replay, too: it would read a trace that an earlier window left.
    sequence.check_kept(rows);
    if (rows > 0 && rows != sequence.next_rows_) {
        key_ = {static_cast<std::int64_t>(Recorded::replay), rows};
        sequence.mark_trunk(key_);
        const auto submit = [&] { sequence.replay({rows}, ops_, *queue_); };
        // By reference it takes no memory.
        queue_->run(key_, std::ref(submit));
    }
    sequence.keep(rows);
}

}  // namespace strata::model
