// Options of every command that loads a model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "strata/engine.h"

namespace strata::cli {

inline constexpr std::int64_t kDeviceNumberMax = 1023;

// In the order of CacheKind and of PromptForm.
inline const std::vector<std::string> kCacheNames = {"f16", "f32", "q8_0"};
inline const std::vector<std::string> kPromptFormNames = {"recurrent", "chunked"};

struct ModelOptions {
    std::string model;
    std::string dflash;  // a DFlash2 draft; empty: none
    DeviceChoice device;
    std::int64_t threads = 0;
    std::int64_t context = 0;  // 0: the default
    std::int64_t chunk = EngineOptions{}.chunk;
    std::optional<std::int64_t> ngram_cache;
    std::optional<std::int64_t> ram;
    std::optional<std::int64_t> vram;
    std::optional<std::int64_t> checkpoints;
    std::size_t cache = 0;        // of kCacheNames
    std::size_t prompt_form = 0;  // of kPromptFormNames
};

// "auto", "cpu", "cuda" or "cuda:N".
Status read_device(const std::string& text, DeviceChoice& device);

void add_model_options(Options& options, ModelOptions* to);

// Its parts but for --context, which not every command takes for the same.
void add_model_option(Options& options, ModelOptions* to);
void add_device_option(Options& options, ModelOptions* to);
void add_computing_options(Options& options, ModelOptions* to);

EngineOptions engine_options(const ModelOptions& options);
// Engine::load, and a line for a person where a GPU was looked for and not used, or where the
// context is shorter than the model's.
Result<std::unique_ptr<Engine>> load(const EngineOptions& options);
Result<std::unique_ptr<Engine>> load(const ModelOptions& options);

}  // namespace strata::cli
