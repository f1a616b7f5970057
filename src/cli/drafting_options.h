// Options of every command that generates: who guesses tokens ahead, and what is written down for
// training those who guess.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/model_options.h"
#include "cli/options.h"
#include "strata/engine.h"

namespace strata::cli {

struct DraftingOptions {
    std::string draft = "auto";
    std::optional<std::string> dflash;
    std::optional<std::string> mtp;
    std::optional<std::int64_t> rows;
    std::optional<double> confidence_min;
    std::optional<std::string> dump;
    std::optional<std::vector<std::int32_t>> dump_layers;
    bool dump_residual = false;
};

void add_drafting_options(Options& options, DraftingOptions* to);

// Errors, of wrong use: a drafter that there is none of or that needs more options, a window or a
// floor out of range. add_drafting_options has it checked.
Status check_drafter(const DraftingOptions& options);

// The engine that both kinds of options describe. Errors: as Engine::load, and a model's file where
// features are to be written.
Result<std::unique_ptr<Engine>> load(const ModelOptions& model, const DraftingOptions& drafting);

Drafting drafting_of(const DraftingOptions& options);

}  // namespace strata::cli
