// Options of every command that writes a model: the number format of each part.
#pragma once

#include "cli/options.h"
#include "strata/types.h"

namespace strata::cli {

// --type and the option of each part. For `quantize` --type must be given, and may be kKeepType.
void add_type_options(Options& options, TypeNames* to, bool quantize);

}  // namespace strata::cli
