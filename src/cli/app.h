// The command line of the program.
#pragma once

namespace strata::cli {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUse = 2;

// Reads the command line and runs the command. Returns the exit status; what went wrong is told in
// one sentence on standard error.
int run(int argc, const char* const* argv);

}  // namespace strata::cli
