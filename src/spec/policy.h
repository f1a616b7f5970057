// Who guesses in the next window, and how far: the choice of `auto`.
//
// A window of one row gives one token; guesses make it longer and slower, and give more tokens
// where they are right. The choice is the drafter and the number of guesses that give most tokens
// beyond what the same time gives otherwise, from what the windows so far gave and took;
// docs/decision/auto_drafting.md says why so. Pure: it reads no clock, and the same calls give the
// same choices.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "spec/cost_curve.h"
#include "spec/drafter.h"
#include "spec/suffix.h"

namespace strata::spec {

// How often something was so, lately.
class Share {
  public:
    // With `prior` counting as so many cases.
    double value(double prior, double cases) const;
    void see(bool so);
    void fade(double keep);

  private:
    double so_ = 0;
    double all_ = 0;
};

// What is known of a drafter that computes its guesses.
struct NeuralPrior {
    double cost = 0;   // of one guess, in target windows of one row
    double slope = 0;  // what each further guess adds to it
    double share = 0;  // of first guesses that are right
    std::int64_t count_max = 0;
    // All guesses are computed at once, whether they are wanted or not.
    bool block = false;
};

// Of one machine and model: sessions may share them.
struct Costs {
    explicit Costs(std::span<const NeuralPrior> drafters);

    CostCurve verify;               // by rows
    std::vector<CostCurve> drafts;  // by guesses, one a drafter
};

class Policy {
  public:
    static constexpr int kNobody = -2;
    static constexpr int kSuffix = -1;

    struct Offer {
        std::int64_t count = 0;            // guesses at most
        std::span<const Evidence> suffix;  // what guesses of the suffix drafter rest on
        // Drafter::behind() of each drafter; empty: none is.
        std::span<const std::int64_t> behind = {};
    };
    struct Choice {
        int who = kNobody;  // or kSuffix, or the index of a drafter
        std::int64_t count = 0;
    };

    explicit Policy(std::vector<NeuralPrior> drafters);

    // What steps took that nothing but their time was wanted of: `rows` of a verify window, or
    // `guesses` of a drafter.
    void calibrate_window(std::int64_t rows, double milliseconds);
    void calibrate_draft(std::size_t drafter, std::int64_t guesses, double milliseconds);

    Choice choose(const Offer& offer);

    // Of the drafter chosen: whether it should guess on after these confidences, where the suffix
    // drafter could go on with guesses of this evidence, and how many of its guesses are worth a
    // row.
    bool go_on(std::span<const float> confidence, std::span<const Evidence> suffix) const;
    std::int64_t worth(std::span<const float> confidence) const;

    // How many guesses of the suffix drafter are worth a row after those of the drafter chosen.
    std::int64_t worth_after(std::span<const float> confidence,
                             std::span<const Evidence> evidence) const;

    // What became of the choice: `computed` guesses were made, and those of `confidence` were
    // verified.
    void learn(std::int64_t computed, std::span<const float> confidence, const Verified& window);

    // What the suffix drafter would have guessed, or did, against what came: the first `right` of
    // its guesses were right, and the one after them wrong where `wrong`.
    void learn_suffix(std::span<const Evidence> evidence, std::int64_t right, bool wrong);

    // Another text begins: costs stay, the rest counts for less.
    void fade();

  private:
    static constexpr std::size_t kConfidenceClasses = 8;
    static std::size_t confidence_class(float confidence);

    struct Drafter {
        NeuralPrior prior;
        std::array<Share, kCostSizesMax> by_position;
        std::array<Share, kConfidenceClasses> by_confidence;
        // What its windows gave and were made of, lately.
        double tokens = 0;
        std::array<double, kCostSizesMax + 1> rows{};
        std::array<double, kCostSizesMax + 1> guesses{};
        double last_ms = 0;  // when it was last tried
        // In the choice under way: how many guesses would be best, and what they would gain.
        std::int64_t count = 0;
        double gain = 0;

        void forget(double keep);
    };
    // Tokens and milliseconds of a window.
    struct Window {
        double tokens = 1;
        double ms = 0;
        // Tokens more than the same time gives otherwise.
        double gain(double rate) const { return tokens - rate * ms; }
    };

    double verify(std::int64_t rows) const { return costs_.verify.at(rows); }
    double draft(std::size_t drafter, std::int64_t guesses) const;
    double position_share(const Drafter& drafter, std::size_t position) const;
    double confidence_share(const Drafter& drafter, float confidence) const;
    double suffix_share(Evidence evidence) const;
    void consider_suffix(std::span<const Evidence> evidence, double& best);
    Window expected_window(std::size_t drafter, std::int64_t count) const;
    std::int64_t best_count(std::size_t drafter, std::int64_t limit) const;
    Window usual_window(std::size_t drafter, std::int64_t count) const;
    double catch_up(const Offer& offer, std::size_t drafter) const;
    bool worth_a_try(std::size_t drafter, double loss) const;
    void learn_guesses(Drafter& drafter, std::span<const float> confidence, std::int64_t accepted);

    std::vector<Drafter> drafters_;
    Costs costs_;
    std::array<Share, kEvidenceCount> by_evidence_;
    double now_ms_ = 0;         // of all windows learned
    double plain_last_ms_ = 0;  // when a window of one row was last seen
    double tokens_ = 0;         // of the last windows, and what such windows take
    double ms_ = 0;
    double rate_ = 0;  // tokens a millisecond, of late
    Choice choice_;
};

}  // namespace strata::spec
