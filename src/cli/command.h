// The commands of the program, one file each.
#pragma once

#include "cli/options.h"

namespace strata::cli {

// Each adds the command's options and returns what to run.
Run add_generate(Options& options);
Run add_chat(Options& options);
Run add_logits(Options& options);
Run add_features(Options& options);
Run add_draft(Options& options);
Run add_dflash_head(Options& options);
Run add_mtp_head(Options& options);
Run add_convert(Options& options);
Run add_inspect(Options& options);
Run add_quantize(Options& options);
Run add_synth(Options& options);
Run add_eval(Options& options);
Run add_bench(Options& options);

}  // namespace strata::cli
