// Options of every command that writes a model: the number format of each part.
#pragma once

#include "cli/options.h"
#include "strata/types.h"

namespace strata::cli {

// --type and the option of each part.
void add_type_options(Options& options, TypeNames* to, bool type_required);

}  // namespace strata::cli
