#include "spec/policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace strata::spec {
namespace {

// Windows that a share or a drafter's yield remembers: about 1 / (1 - kKeep).
constexpr double kKeep = 0.97;
// Cases that a prior counts as: of guesses by place, by confidence and by evidence.
constexpr double kPriorCases = 8;
constexpr double kConfidenceCases = 10;
constexpr double kEvidenceCases = 16;
// Windows that what is expected of a drafter counts as, beside what it gave.
constexpr double kExpectedWindows = 4;
// What trying a drafter that is not the best may lose, of the time since its last try.
constexpr double kTryLoss = 0.0005;
// What its windows count for after each window of another drafter, and by how much a drafter is
// taken to be better than it seemed, over the root of the windows that are known of it: of two that
// are nearly as good the one that had bad luck gets another chance.
constexpr double kIdle = 0.995;
constexpr double kHope = 0.05;
// What the cases of a place or a confidence count for after each window of the same drafter.
constexpr double kUnseen = 0.99;
// The rate of late begins with the time of so many plain windows, in which so many times their
// tokens came: as if text were already being guessed well, so that first guesses are sure ones.
constexpr double kRateWindows = 16;
constexpr double kRatePrior = 1.3;
// What a drafter takes to take in a row that it is behind by, in windows of one row, and windows
// in which that has to be made good.
constexpr double kBehindCost = 0.03;
constexpr double kBehindWindows = 30;
// What an earlier text counts for in the next.
constexpr double kFade = 0.6;
// Of another row of a verify window, in windows of one row: experts are read row by row.
constexpr double kVerifySlope = 0.3;

}  // namespace

double Share::value(double prior, double cases) const {
    return (so_ + cases * prior) / (all_ + cases);
}

void Share::see(bool so) {
    so_ = kKeep * so_ + (so ? 1 : 0);
    all_ = kKeep * all_ + 1;
}

void Share::fade(double keep) {
    so_ *= keep;
    all_ *= keep;
}

Costs::Costs(std::span<const NeuralPrior> drafters) : verify(1, kVerifySlope) {
    for (const NeuralPrior& drafter : drafters) drafts.emplace_back(drafter.cost, drafter.slope);
}

Policy::Policy(std::vector<NeuralPrior> drafters) : costs_(drafters) {
    for (NeuralPrior& prior : drafters) {
        drafters_.emplace_back();
        drafters_.back().prior = std::move(prior);
    }
}

void Policy::Drafter::forget(double keep) {
    for (double& n : rows) n *= keep;
    for (double& n : guesses) n *= keep;
    tokens *= keep;
}

double Policy::draft(std::size_t drafter, std::int64_t guesses) const {
    if (guesses == 0) return 0;
    return costs_.drafts[drafter].at(guesses, drafters_[drafter].prior.cost * verify(1));
}

// A place not yet seen is like the one before it.
double Policy::position_share(const Drafter& drafter, std::size_t position) const {
    double share = drafter.prior.share;
    for (std::size_t i = 0; i <= position; ++i) {
        share = drafter.by_position[i].value(share, kPriorCases);
    }
    return share;
}

std::size_t Policy::confidence_class(float confidence) {
    const double at = std::clamp(static_cast<double>(confidence), 0.0, 1.0) * kConfidenceClasses;
    return std::min(static_cast<std::size_t>(at), kConfidenceClasses - 1);
}

double Policy::confidence_share(const Drafter& drafter, float confidence) const {
    const std::size_t c = confidence_class(confidence);
    const double middle = (static_cast<double>(c) + 0.5) / kConfidenceClasses;
    return drafter.by_confidence[c].value(middle, kConfidenceCases);
}

double Policy::suffix_share(Evidence evidence) const {
    const auto e = static_cast<std::size_t>(evidence);
    return by_evidence_[e].value(kEvidenceShare[e], kEvidenceCases);
}

void Policy::consider_suffix(std::span<const Evidence> evidence, double& best) {
    double chance = 1;
    double tokens = 1;
    std::int64_t count = 0;
    for (const Evidence one : evidence) {
        chance *= suffix_share(one);
        if (chance < kSuffixChanceMin) break;
        tokens += chance;
        const double gain = Window{tokens, verify(++count + 1)}.gain(rate_);
        if (gain <= best) continue;
        best = gain;
        choice_ = {kSuffix, count};
    }
}

// Guesses after the first wrong one are mostly cut off by their confidence.
Policy::Window Policy::expected_window(std::size_t drafter, std::int64_t count) const {
    double right = 0;
    double chance = 1;
    double share = drafters_[drafter].prior.share;
    for (std::int64_t i = 0; i < count; ++i) {
        share =
            drafters_[drafter].by_position[static_cast<std::size_t>(i)].value(share, kPriorCases);
        right += chance *= share;
    }
    const auto used = std::min(count, static_cast<std::int64_t>(std::ceil(right)) + 1);
    const std::int64_t computed = drafters_[drafter].prior.block ? count : used;
    return {1 + right, draft(drafter, computed) + verify(used + 1)};
}

std::int64_t Policy::best_count(std::size_t drafter, std::int64_t limit) const {
    const Drafter& d = drafters_[drafter];
    limit = std::min(limit, d.prior.count_max);
    std::int64_t best = 1;
    for (std::int64_t n = 2; n <= limit; ++n) {
        const double gain = expected_window(drafter, n).gain(rate_);
        if (gain > expected_window(drafter, best).gain(rate_)) best = n;
    }
    return best;
}

// What its windows gave, at what such windows cost now.
Policy::Window Policy::usual_window(std::size_t drafter, std::int64_t count) const {
    const Drafter& d = drafters_[drafter];
    const Window expected = expected_window(drafter, count);
    Window sum{kExpectedWindows * expected.tokens + d.tokens, kExpectedWindows * expected.ms};
    double windows = kExpectedWindows;
    for (std::int64_t n = 0; n <= static_cast<std::int64_t>(kCostSizesMax); ++n) {
        const auto at = static_cast<std::size_t>(n);
        if (d.rows[at] > 0) sum.ms += d.rows[at] * verify(n);
        if (d.guesses[at] > 0) sum.ms += d.guesses[at] * draft(drafter, n);
        windows += d.rows[at];
    }
    const double hope = 1 + kHope / std::sqrt(windows);
    return {hope * sum.tokens / windows, sum.ms / windows};
}

// In milliseconds.
double Policy::catch_up(const Offer& offer, std::size_t drafter) const {
    if (offer.behind.empty()) return 0;
    return kBehindCost * verify(1) * static_cast<double>(offer.behind[drafter]);
}

// `loss` in milliseconds.
bool Policy::worth_a_try(std::size_t drafter, double loss) const {
    const Drafter& d = drafters_[drafter];
    return loss <= kTryLoss * (now_ms_ - d.last_ms);
}

void Policy::calibrate_window(std::int64_t rows, double milliseconds) {
    costs_.verify.begin(rows, milliseconds);
}

void Policy::calibrate_draft(std::size_t drafter, std::int64_t guesses, double milliseconds) {
    costs_.drafts[drafter].begin(guesses, milliseconds);
}

Policy::Choice Policy::choose(const Offer& offer) {
    choice_ = {};
    const Window plain{1, verify(1)};
    rate_ = (kRateWindows * kRatePrior + tokens_) / (kRateWindows * plain.ms + ms_);
    if (offer.count < 1) return choice_;
    double best = plain.gain(rate_);
    const auto limit = static_cast<std::size_t>(offer.count);
    consider_suffix(offer.suffix.first(std::min(offer.suffix.size(), limit)), best);
    for (std::size_t i = 0; i < drafters_.size(); ++i) {
        Drafter& d = drafters_[i];
        d.count = best_count(i, offer.count);
        d.gain = usual_window(i, d.count).gain(rate_) - rate_ * catch_up(offer, i) / kBehindWindows;
        if (d.gain <= best) continue;
        best = d.gain;
        choice_ = {static_cast<int>(i), d.count};
    }
    // Figures of what is not chosen grow old: each is tried again when little can be lost.
    for (std::size_t i = 0; i < drafters_.size(); ++i) {
        const Drafter& d = drafters_[i];
        if (choice_.who == static_cast<int>(i)) continue;
        if (worth_a_try(i, (best - d.gain) / rate_ + catch_up(offer, i))) {
            return choice_ = {static_cast<int>(i), d.count};
        }
    }
    const double loss = (best - plain.gain(rate_)) / rate_;
    if (loss <= kTryLoss * (now_ms_ - plain_last_ms_)) choice_ = {};
    return choice_;
}

bool Policy::go_on(std::span<const float> confidence, std::span<const Evidence> suffix) const {
    STRATA_CHECK(choice_.who >= 0);
    const auto index = static_cast<std::size_t>(choice_.who);
    const Drafter& drafter = drafters_[index];
    const auto made = static_cast<std::int64_t>(confidence.size());
    double chance = 1;
    for (const float c : confidence) chance *= confidence_share(drafter, c);
    const double row = rate_ * (verify(made + 2) - verify(made + 1));
    const double guess = rate_ * (draft(index, made + 1) - draft(index, made));
    const double gain = chance * position_share(drafter, confidence.size()) - guess - row;
    const double free = suffix.empty() ? 0 : chance * suffix_share(suffix.front()) - row;
    return gain > std::max(0.0, free);
}

std::int64_t Policy::worth(std::span<const float> confidence) const {
    STRATA_CHECK(choice_.who >= 0);
    const Drafter& drafter = drafters_[static_cast<std::size_t>(choice_.who)];
    double chance = 1;
    double tokens = 1;
    double best = tokens - rate_ * verify(1);
    std::int64_t count = 0;
    for (std::size_t i = 0; i < confidence.size(); ++i) {
        tokens += chance *= confidence_share(drafter, confidence[i]);
        const double gain = tokens - rate_ * verify(static_cast<std::int64_t>(i) + 2);
        if (gain > best) {
            best = gain;
            count = static_cast<std::int64_t>(i) + 1;
        }
    }
    return count;
}

std::int64_t Policy::worth_after(std::span<const float> confidence,
                                 std::span<const Evidence> evidence) const {
    STRATA_CHECK(choice_.who >= 0);
    const Drafter& drafter = drafters_[static_cast<std::size_t>(choice_.who)];
    double chance = 1;
    for (const float c : confidence) chance *= confidence_share(drafter, c);
    const auto made = static_cast<std::int64_t>(confidence.size());
    double gain = 0;
    double best = 0;
    std::int64_t count = 0;
    for (std::int64_t i = 1; i <= std::ssize(evidence); ++i) {
        chance *= suffix_share(evidence[static_cast<std::size_t>(i - 1)]);
        gain += chance - rate_ * (verify(made + i + 1) - verify(made + i));
        if (gain <= best) continue;
        best = gain;
        count = i;
    }
    return count;
}

void Policy::learn_guesses(Drafter& drafter, std::span<const float> confidence,
                           std::int64_t accepted) {
    // What is not guessed for a while is given another chance.
    for (Share& share : drafter.by_position) share.fade(kUnseen);
    for (Share& share : drafter.by_confidence) share.fade(kUnseen);
    for (std::size_t i = 0; i < confidence.size(); ++i) {
        const bool right = static_cast<std::int64_t>(i) < accepted;
        drafter.by_confidence[confidence_class(confidence[i])].see(right);
        drafter.by_position[i].see(right);
        if (!right) break;  // what follows was guessed after a wrong token
    }
}

void Policy::learn(std::int64_t computed, std::span<const float> confidence,
                   const Verified& window) {
    costs_.verify.see(window.rows, window.verify_ms);
    now_ms_ += window.draft_ms + window.verify_ms;
    if (window.rows == 1) plain_last_ms_ = now_ms_;
    tokens_ = kKeep * tokens_ + 1 + static_cast<double>(window.accepted);
    ms_ = kKeep * ms_ + verify(window.rows);
    if (choice_.who >= 0) ms_ += draft(static_cast<std::size_t>(choice_.who), computed);
    for (Drafter& drafter : drafters_) drafter.forget(kIdle);
    if (choice_.who < 0) return;
    const auto index = static_cast<std::size_t>(choice_.who);
    Drafter& d = drafters_[index];
    if (computed > 0) costs_.drafts[index].see(computed, window.draft_ms);
    learn_guesses(d, confidence, window.accepted);
    d.forget(kKeep);
    d.tokens += 1 + static_cast<double>(window.accepted);
    d.rows[static_cast<std::size_t>(window.rows)] += 1;
    d.guesses[static_cast<std::size_t>(computed)] += 1;
    d.last_ms = now_ms_;
}

void Policy::learn_suffix(std::span<const Evidence> evidence, std::int64_t right, bool wrong) {
    // What came after the last guess says nothing of it.
    const std::size_t seen =
        std::min(evidence.size(), static_cast<std::size_t>(right) + (wrong ? 1 : 0));
    for (std::size_t i = 0; i < seen; ++i) {
        by_evidence_[static_cast<std::size_t>(evidence[i])].see(i <
                                                                static_cast<std::size_t>(right));
    }
}

void Policy::fade() {
    for (Share& share : by_evidence_) share.fade(kFade);
    for (Drafter& d : drafters_) {
        for (Share& share : d.by_position) share.fade(kFade);
        for (Share& share : d.by_confidence) share.fade(kFade);
        d.forget(kFade);
    }
}

}  // namespace strata::spec
