// Options of every command that loads a model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/options.h"
#include "strata/engine.h"

namespace strata::cli {

struct ModelOptions {
    std::string model;
    std::string dflash;  // a DFlash2 draft; empty: none
    std::int64_t threads = 0;
    std::int64_t context = 0;
    std::int64_t chunk = EngineOptions{}.chunk;
    std::size_t cache = 0;        // of the choices f16, f32
    std::size_t prompt_form = 0;  // of the choices recurrent, chunked
};

void add_model_options(Options& options, ModelOptions* to);

Result<std::unique_ptr<Engine>> load(const ModelOptions& options);

}  // namespace strata::cli
