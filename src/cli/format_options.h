// The option of commands that write answers: what their text is held to.
#pragma once

#include <cstddef>

#include "cli/options.h"
#include "strata/engine.h"

namespace strata::cli {

struct FormatOptions {
    std::size_t format = 0;
};

void add_format_options(Options& options, FormatOptions* to);

ResponseFormat format_of(const FormatOptions& options);

}  // namespace strata::cli
