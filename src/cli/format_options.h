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

// A line that tells of an answer in a format which ends before it is whole, by -n of `max_tokens`
// or a full context; empty: it does not.
std::string cut_note(const Completion& answer, std::int64_t max_tokens);

ResponseFormat format_of(const FormatOptions& options);

}  // namespace strata::cli
