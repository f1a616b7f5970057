// Ctrl-C as something that work looks at, so that it can put its files away first.
#pragma once

#include <csignal>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/result.h"

namespace strata::cli {

// While one lives, the first of `signals` is noted and the second ends the process; that the time
// for computing is up (SIGXCPU) is told every second, and only noted. One at a time.
class Interrupt {
  public:
    explicit Interrupt(std::initializer_list<int> signals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT,
                                                             SIGXCPU});
    Interrupt(const Interrupt&) = delete;
    Interrupt& operator=(const Interrupt&) = delete;
    ~Interrupt();

    bool seen() const;
    void forget() const;
    // Error: one has been seen.
    Status status() const;

  private:
    std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace strata::cli
