// The commands of the program, one file each.
#pragma once

#include <functional>

#include "base/result.h"
#include "cli/options.h"

namespace strata::cli {

// What a command does once the command line has been read. Its error ends the program.
using Run = std::function<Status()>;

// Each adds the command's options and returns what to run.
Run add_generate(Options& options);
Run add_chat(Options& options);
Run add_logits(Options& options);
Run add_features(Options& options);
Run add_draft(Options& options);
Run add_convert(Options& options);
Run add_inspect(Options& options);

}  // namespace strata::cli
