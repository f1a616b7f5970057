// Several drafters as one: the policy says who guesses in each window, and how far.
#pragma once

#include <memory>
#include <vector>

#include "spec/drafter.h"
#include "spec/policy.h"
#include "spec/suffix.h"

namespace strata::spec {

class AutoDrafter final : public Drafter {
  public:
    // `policy` outlives it and is of the same drafters. It can serve several texts, a window of one
    // at a time: what was learned of one is where the next begins.
    AutoDrafter(std::vector<std::unique_ptr<Drafter>> drafters, Policy& policy);

    std::string_view name() const override { return "auto"; }
    Result<Guesses> guess(const GuessRequest& request) override;
    void verified(const Verified& window) override;
    std::string_view source() const override { return source_; }
    void reset() override;

    void want(const StepRows& rows, model::StepRequest& request) override;
    Status keep(std::int64_t first, std::span<const std::int32_t> tokens,
                const model::StepResult& result) override;

    std::string save() override;
    void restore(std::string_view saved) override;

  private:
    void read(std::span<const std::int32_t> text);
    Result<Guesses> guess_with(std::size_t drafter, std::int64_t count,
                               const GuessRequest& request);
    void add_suffix(const GuessRequest& request, Guesses& guesses) const;

    std::vector<std::unique_ptr<Drafter>> drafters_;
    Policy& policy_;
    SuffixDrafter suffix_;
    // What the suffix drafter would have guessed last, whoever did.
    struct Expected {
        std::size_t at = 0;  // where in the text its first token belongs
        SuffixDrafter::Continuation guesses;
    } expected_;
    std::string_view source_ = "none";
    std::vector<std::int64_t> behind_;
    std::int64_t computed_ = 0;      // guesses made in the window under way
    std::vector<float> confidence_;  // of those that are verified
};

}  // namespace strata::spec
