// The parts of strata eval that are about drafters.
#pragma once

#include "cli/options.h"

namespace strata::cli {

Run add_acceptance(Options& options);
Run add_lossless(Options& options);

}  // namespace strata::cli
