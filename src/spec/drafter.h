// Drafters guess the tokens that follow. A guess can be wrong but not harmful: the target verifies
// each one, so drafters change the speed and never the text.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace strata::spec {

class Drafter {
  public:
    virtual ~Drafter() = default;
    virtual std::string_view name() const = 0;

    // Guesses, at most `count`, what follows `text`: a sequence whose last token the target has not
    // run yet. Between two calls the text only grows, unless reset() is called. Fewer guesses, or
    // none, are always allowed.
    virtual Status guess(std::span<const std::int32_t> text, std::int64_t count,
                         std::vector<std::int32_t>& guesses) = 0;

    // The next text is another one.
    virtual void reset() = 0;
};

}  // namespace strata::spec
