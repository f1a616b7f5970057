// Long work that a person watches and may end: a progress line, and signals that it looks for.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "cli/interrupt.h"
#include "cli/output.h"

namespace strata::cli {

// One at a time, as Interrupt is.
class Watched {
  public:
    explicit Watched(std::string what) : progress_(std::move(what)) {}

    // Shows how much is done of how much; false once the work is to end. Outlived by this.
    auto callback() {
        return [this](std::int64_t done, std::int64_t total) {
            progress_.show(done, total);
            return !interrupt_.seen();
        };
    }

  private:
    Interrupt interrupt_;
    Progress progress_;
};

}  // namespace strata::cli
