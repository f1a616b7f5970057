#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/philox.h"
#include "base/scan.h"
#include "base/text.h"

namespace strata {
namespace {

constexpr double kPenaltyMax = 1e6;
// As a file says it, in a float.
constexpr double kRepeatPenaltyMin = 1e-6F;

Status in_range(std::string_view what, double value, double low, double high) {
    if (value >= low && value <= high) return Ok{};  // false for NaN
    return STRATA_ERROR("the ", what, " is ", shortest(value), ", wanted ", low, " to ", high);
}

}  // namespace

Status check(const Sampling& s) {
    STRATA_TRY(in_range("temperature", s.temperature, 0, kPenaltyMax));
    STRATA_TRY(in_range("top-k", static_cast<double>(s.top_k), 0, kPenaltyMax * kPenaltyMax));
    STRATA_TRY(in_range("top-p", s.top_p, 0, 1));
    STRATA_TRY(in_range("min-p", s.min_p, 0, 1));
    STRATA_TRY(in_range("repeat penalty", s.repeat_penalty, kRepeatPenaltyMin, kPenaltyMax));
    STRATA_TRY(in_range("presence penalty", s.presence_penalty, -kPenaltyMax, kPenaltyMax));
    STRATA_TRY(in_range("frequency penalty", s.frequency_penalty, -kPenaltyMax, kPenaltyMax));
    if (s.penalty_window < -1) {
        return STRATA_ERROR("the penalty window is ", s.penalty_window,
                            " tokens, wanted -1 for all or at least 0");
    }
    return Ok{};
}

bool Sampler::penalizes() const {
    const bool none = sampling_.repeat_penalty == 1 && sampling_.presence_penalty == 0 &&
                      sampling_.frequency_penalty == 0;
    return !none && sampling_.penalty_window != 0;
}

bool Sampler::plain() const { return sampling_.temperature == 0 && !penalizes(); }

void Sampler::ask(std::span<const std::int32_t> text, std::span<const std::int32_t> window,
                  model::StepRequest& request) {
    request.picks = plain() ? model::Picks::largest : model::Picks::none;
    if (!tell_draws(text, window)) return;
    request.picks = model::Picks::draw;
    request.draws = &draws_;
}

const model::Draws* Sampler::draws(std::span<const std::int32_t> before) {
    return tell_draws(before, before.last(1)) ? &draws_ : nullptr;
}

const model::Draws* Sampler::draws_along(std::span<const std::int32_t> before, std::int64_t count) {
    if (plain()) return nullptr;
    tell_rule(before);
    op::DrawRule& rule = draws_.rule;
    // A guess may be drawn as if fewer tokens were penalized for.
    draws_.penalized.resize(
        std::min(draws_.penalized.size(), static_cast<std::size_t>(op::kPenalizedMax)));
    rule.penalized = std::ssize(draws_.penalized);
    STRATA_CHECK(count <= op::kDrawRowsMax);
    for (std::int64_t i = 0; i + 1 < count; ++i) {
        const auto at = out_of_reach(static_cast<std::int64_t>(before.size()) + i);
        if (!at) continue;
        const std::int64_t guess = *at - static_cast<std::int64_t>(before.size());
        rule.leaves[i] = guess < 0 ? before[static_cast<std::size_t>(*at)]
                                   : static_cast<std::int32_t>(-2 - guess);
    }
    return &draws_;
}

bool Sampler::tell_draws(std::span<const std::int32_t> text, std::span<const std::int32_t> window) {
    if (plain()) return false;
    tell_rule(text);
    return tell_guesses(text, window);
}

void Sampler::tell_rule(std::span<const std::int32_t> text) {
    op::DrawRule& rule = draws_.rule;
    rule = {.temperature = sampling_.temperature,
            .repeat_penalty = sampling_.repeat_penalty,
            .presence_penalty = sampling_.presence_penalty,
            .frequency_penalty = sampling_.frequency_penalty,
            .seed = sampling_.seed,
            .position = static_cast<std::int64_t>(text.size())};
    if (sampling_.temperature > 0) {
        rule.top_p = sampling_.top_p;
        rule.top_k = sampling_.top_k;
    }
    if (sampling_.min_p > 0) rule.lowest = std::max(rule.lowest, std::log(sampling_.min_p));
    std::fill(std::begin(rule.joins), std::end(rule.joins), -1);
    std::fill(std::begin(rule.leaves), std::end(rule.leaves), -1);
    draws_.penalized.clear();
    for_each_penalized(text, [&](std::int32_t token, std::int64_t count) {
        draws_.penalized.push_back({token, static_cast<std::int32_t>(count)});
    });
}

std::optional<std::int64_t> Sampler::out_of_reach(std::int64_t length) const {
    if (!penalizes() || sampling_.penalty_window <= 0) return std::nullopt;
    const std::int64_t at = length - sampling_.penalty_window;
    return at < 0 ? std::nullopt : std::optional(at);
}

bool Sampler::tell_guesses(std::span<const std::int32_t> text,
                           std::span<const std::int32_t> window) {
    STRATA_CHECK(std::ssize(window) <= op::kDrawRowsMax);
    op::DrawRule& rule = draws_.rule;
    for (std::size_t i = 0; penalizes() && i + 1 < window.size(); ++i) {
        const std::int32_t guess = window[i + 1];
        rule.joins[i] = guess;
        // Of the text and the guesses before this one, the one that it moves out of reach.
        if (const auto out = out_of_reach(static_cast<std::int64_t>(text.size() + i))) {
            const auto at = static_cast<std::size_t>(*out);
            rule.leaves[i] = at < text.size() ? text[at] : window[at - text.size() + 1];
        }
        const auto same = [&](const op::Penalized& p) { return p.token == guess; };
        if (std::ranges::none_of(draws_.penalized, same)) draws_.penalized.push_back({guess, 0});
    }
    rule.penalized = std::ssize(draws_.penalized);
    return rule.penalized <= op::kPenalizedMax;
}

// By the very numbers of pick().
std::optional<std::int32_t> Sampler::pick_drawn(std::span<const op::Drawn> drawn,
                                                std::int64_t position) {
    const auto penalized_of = [&](const op::Drawn& one) {
        const auto logit = static_cast<double>(one.logit);
        return one.count > 0 ? penalized(logit, one.count) : logit;
    };
    if (sampling_.temperature == 0) return drawn.front().token;
    const double largest = penalized_of(drawn.front());
    candidates_.clear();
    for (const op::Drawn& one : drawn.subspan(1)) {
        if (one.token < 0) break;
        const double logit = (penalized_of(one) - largest) / sampling_.temperature;
        candidates_.push_back({logit, one.token});
    }
    const std::int32_t token = draw_kept(position);
    if (std::ranges::find(drawn.subspan(1), token, &op::Drawn::token)->sure == 0) {
        return std::nullopt;
    }
    const op::Drawn& last = drawn.back();
    if (last.token < 0) return token;
    // Tokens that are not listed have no higher score than the last, as far as it tells.
    const auto best = std::ranges::find(candidates_, token, &Candidate::id);
    const auto score = static_cast<double>(last.score);
    if (best->logit > score + op::score_error(score)) return token;
    return std::nullopt;
}

template <typename Use>
void Sampler::for_each_penalized(std::span<const std::int32_t> before, const Use& use) {
    if (!penalizes()) return;
    if (sampling_.penalty_window > 0) {
        const auto window = static_cast<std::size_t>(sampling_.penalty_window);
        before = before.last(std::min(window, before.size()));
    }
    counted_.clear();
    for (const std::int32_t token : before) {
        const auto at = static_cast<std::size_t>(token);
        if (at >= counts_.size()) counts_.resize(at + 1);
        if (counts_[at]++ == 0) counted_.push_back(token);
    }
    for (const std::int32_t token : counted_) {
        use(token, std::exchange(counts_[static_cast<std::size_t>(token)], 0));
    }
}

double Sampler::penalized(double logit, std::int64_t count) const {
    const op::DrawRule rule{.repeat_penalty = sampling_.repeat_penalty,
                            .presence_penalty = sampling_.presence_penalty,
                            .frequency_penalty = sampling_.frequency_penalty};
    return op::penalized_logit(rule, logit, count);
}

// Candidates are in the order of their ids.
void Sampler::penalize(std::span<const std::int32_t> before) {
    for_each_penalized(before, [&](std::int32_t token, std::int64_t count) {
        const auto found =
            std::lower_bound(candidates_.begin(), candidates_.end(), token,
                             [](const Candidate& c, std::int32_t id) { return c.id < id; });
        if (found == candidates_.end() || found->id != token) return;
        found->logit = penalized(found->logit, count);
    });
}

void Sampler::keep_top_k() {
    const auto k = static_cast<std::size_t>(sampling_.top_k);
    if (k == 0 || k >= candidates_.size()) return;
    const auto better = [](const Candidate& a, const Candidate& b) {
        return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    };
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k) - 1,
                     candidates_.end(), better);
    candidates_.resize(k);
}

// Logits are already differences to the largest, divided by the temperature.
void Sampler::keep_top_p() {
    if (sampling_.top_p >= 1) return;
    std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
        return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    });
    double sum = 0;
    for (const Candidate& c : candidates_) sum += std::exp(c.logit);
    double reached = 0;
    std::size_t kept = 0;
    while (kept < candidates_.size()) {
        reached += std::exp(candidates_[kept++].logit) / sum;
        if (reached >= sampling_.top_p) break;
    }
    candidates_.resize(kept);
}

void Sampler::keep_min_p() {
    if (sampling_.min_p <= 0) return;
    const double lowest = std::log(sampling_.min_p);
    std::erase_if(candidates_, [&](const Candidate& c) { return c.logit < lowest; });
}

Result<std::int32_t> Sampler::pick(std::span<const float> logits,
                                   std::span<const std::int32_t> before, std::int64_t position,
                                   AnswerRule* rule) {
    if (const std::size_t i = first_nan(logits); i < logits.size()) {
        return STRATA_ERROR("the logit of token ", i, " at position ", position, " is NaN");
    }
    if (rule == nullptr) return pick_any(logits, before, position);
    if (!rule->holds()) {
        // A device that draws need not be told of the rule then.
        const auto token = pick_any(logits, before, position);
        if (token.ok() && rule->allows(*token)) return token;
    }
    return pick_allowed(logits, before, position, *rule);
}

Result<std::int32_t> Sampler::pick_any(std::span<const float> logits,
                                       std::span<const std::int32_t> before,
                                       std::int64_t position) {
    if (sampling_.temperature == 0) return pick_largest(logits, before, position);
    candidates_.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) {
        candidates_.push_back({static_cast<double>(logits[i]), static_cast<std::int32_t>(i)});
    }
    return pick_candidate(before, position);
}

Result<std::int32_t> Sampler::pick_allowed(std::span<const float> logits,
                                           std::span<const std::int32_t> before,
                                           std::int64_t position, AnswerRule& rule) {
    if (sampling_.temperature == 0) {
        const auto largest = pick_largest(logits, before, position);
        if (largest.ok() && rule.allows(largest.value())) return largest.value();
    }
    const grammar::TokenSet* allowed = nullptr;
    if (rule.holds()) {
        STRATA_ASSIGN(allowed, rule.allowed());
    }
    candidates_.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const auto token = static_cast<std::int32_t>(i);
        const bool may = allowed != nullptr ? allowed->has(token) : rule.allows(token);
        if (may) candidates_.push_back({static_cast<double>(logits[i]), token});
    }
    return pick_candidate(before, position);
}

std::optional<std::int32_t> Sampler::pick_of(const model::RowPick& picked, std::int64_t position,
                                             const AnswerRule* rule) {
    const std::optional<std::int32_t> token =
        plain() ? picked.largest.token : pick_drawn(picked.drawn, position);
    if (token && rule != nullptr && !stands(picked, *token, *rule)) return std::nullopt;
    return token;
}

// A draw takes the best score, and scores count from the largest logit: where both are of tokens
// that are allowed, the others change nothing. Top-k and top-p keep more where some are left out.
bool Sampler::stands(const model::RowPick& picked, std::int32_t token,
                     const AnswerRule& rule) const {
    if (!rule.allows(token)) return false;
    if (!rule.holds() || sampling_.temperature == 0) return true;
    return sampling_.top_k == 0 && sampling_.top_p >= 1 && rule.allows(picked.drawn.front().token);
}

// What penalize() and the largest candidate give, without the candidates: a few passes over the
// logits for each token is what a small model's step would notice.
Result<std::int32_t> Sampler::pick_largest(std::span<const float> logits,
                                           std::span<const std::int32_t> before,
                                           std::int64_t position) {
    unpenalized_.assign(logits.begin(), logits.end());
    Candidate best{-std::numeric_limits<double>::infinity(), 0};
    for_each_penalized(before, [&](std::int32_t token, std::int64_t count) {
        const auto at = static_cast<std::size_t>(token);
        if (at >= logits.size()) return;
        unpenalized_[at] = -std::numeric_limits<float>::infinity();
        const Candidate own{penalized(static_cast<double>(logits[at]), count), token};
        if (own.logit > best.logit || (own.logit == best.logit && own.id < best.id)) best = own;
    });
    if (!logits.empty()) {
        const std::size_t at = first_largest(unpenalized_);
        const Candidate own{static_cast<double>(unpenalized_[at]), static_cast<std::int32_t>(at)};
        if (own.logit > best.logit || (own.logit == best.logit && own.id < best.id)) best = own;
    }
    if (!std::isfinite(best.logit)) {
        return STRATA_ERROR("no logit at position ", position, " is finite");
    }
    return best.id;
}

Result<std::int32_t> Sampler::draw_among(std::span<const std::int32_t> tokens,
                                         std::span<const float> logits,
                                         std::span<const std::int32_t> before) {
    candidates_.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        candidates_.push_back({static_cast<double>(logits[i]), tokens[i]});
    }
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
    return pick_candidate(before, static_cast<std::int64_t>(before.size()));
}

Result<std::int32_t> Sampler::pick_candidate(std::span<const std::int32_t> before,
                                             std::int64_t position) {
    penalize(before);
    const auto lower = [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; };
    const auto best = std::max_element(candidates_.begin(), candidates_.end(), lower);
    if (best == candidates_.end() || !std::isfinite(best->logit)) {
        return STRATA_ERROR("no logit at position ", position, " is finite");
    }
    if (sampling_.temperature == 0) return best->id;

    // Differences to the largest first, so that no temperature overflows.
    const double largest = best->logit;
    for (Candidate& c : candidates_) c.logit = (c.logit - largest) / sampling_.temperature;
    keep_top_k();
    keep_top_p();
    keep_min_p();
    return draw_kept(position);
}

std::int32_t Sampler::draw_kept(std::int64_t position) {
    // Noise is at most -log(1 - u), and what it is added to at most 0: where that cannot reach the
    // best so far, its logarithms need not be known. The safety is far more than float64 rounds by,
    // 1e-14 of such numbers, and so little that it costs no logarithm worth mentioning.
    constexpr double kSafety = 1 - 1e-6;
    Candidate best{-std::numeric_limits<double>::infinity(), -1};
    double enough = 1;
    for (Candidate& c : candidates_) {
        const double u = uniform(sampling_.seed, static_cast<std::uint64_t>(position),
                                 static_cast<std::uint32_t>(c.id));
        if ((1 - u) * kSafety > enough) continue;
        c.logit += gumbel(u);
        // Independent of the order in which the filters left the candidates.
        if (c.logit < best.logit || (c.logit == best.logit && c.id > best.id)) continue;
        best = c;
        enough = std::exp(-best.logit);
    }
    return best.id;
}

}  // namespace strata
