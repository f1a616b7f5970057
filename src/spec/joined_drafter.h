// Two drafters as one: the second guesses where the first does not.
#pragma once

#include <memory>
#include <utility>

#include "spec/drafter.h"

namespace strata::spec {

class JoinedDrafter final : public Drafter {
  public:
    // The second makes at most `second_max` guesses.
    JoinedDrafter(std::unique_ptr<Drafter> first, std::unique_ptr<Drafter> second,
                  std::int64_t second_max)
        : first_(std::move(first)), second_(std::move(second)), second_max_(second_max) {}

    std::string_view name() const override { return "joined"; }
    Result<Guesses> guess(const GuessRequest& request) override;
    std::string_view source() const override { return source_; }
    void verified(const Verified& window) override;
    void reset() override;

    void want(const StepRows& rows, model::StepRequest& request) override;
    Status keep(std::int64_t first, std::span<const std::int32_t> tokens,
                const model::StepResult& result) override;

    // Of the second alone: the first is one that the text says everything to.
    std::string save() override { return second_->save(); }
    void restore(std::string_view saved) override;

  private:
    std::unique_ptr<Drafter> first_;
    std::unique_ptr<Drafter> second_;
    std::int64_t second_max_;
    std::string_view source_ = "none";
};

}  // namespace strata::spec
