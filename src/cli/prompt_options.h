// Where a prompt comes from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "strata/engine.h"

namespace strata::cli {

struct PromptOptions {
    std::optional<std::string> text;
    std::optional<std::string> file;
    std::optional<std::vector<std::int32_t>> tokens;
    bool special = false;
};

void add_prompt_options(Options& options, PromptOptions* to);

// Errors: a file that cannot be read, an empty prompt, no tokenizer in the model.
Result<std::vector<std::int32_t>> prompt_tokens(const PromptOptions& options, const Engine& engine);

}  // namespace strata::cli
