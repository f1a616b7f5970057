// Drafters guess the tokens that follow. A guess can be wrong but not harmful: the target verifies
// each one, so drafters change the speed and never the text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "spec/follower.h"

namespace strata::spec {

// One drafter goes along with one sequence; what it needs of the rows it takes as a follower.
class Drafter : public Follower {
  public:
    virtual std::string_view name() const = 0;

    // Guesses, at most `count`, what follows `text`: a sequence whose last token the target has not
    // run yet. Between two calls the text only grows, unless reset() is called. Fewer guesses, or
    // none, are always allowed.
    virtual Status guess(std::span<const std::int32_t> text, std::int64_t count,
                         std::vector<std::int32_t>& guesses) = 0;

    // The next text is another one.
    virtual void reset() {}

    void want(const StepRows&, model::StepRequest&) override {}
    Status keep(std::int64_t, std::span<const std::int32_t>, const model::StepResult&) override {
        return Ok{};
    }

    // What it remembers of the text that the text itself does not say; and back. Bytes of another
    // drafter leave it as after reset().
    virtual std::string save() { return {}; }
    virtual void restore(std::string_view) { reset(); }
};

}  // namespace strata::spec
