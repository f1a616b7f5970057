// What an engine's files take of memory, asked before any of it is taken.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "gguf/reader.h"
#include "model/plan.h"
#include "strata/engine.h"

namespace strata {

// Null: there is none.
struct EngineFiles {
    const gguf::File* model = nullptr;
    const gguf::File* mtp = nullptr;
    const gguf::File* dflash = nullptr;
};

// `device`: the free bytes of a GPU; nothing: the model runs on the host. Errors: a context past
// the trained length; one that was asked for and does not fit, or none that fits.
Result<model::Fit> fit_engine(const EngineOptions& options, const EngineFiles& files,
                              std::optional<std::uint64_t> device);

MemoryUse memory_use(const model::MemoryPlan& plan);

}  // namespace strata
