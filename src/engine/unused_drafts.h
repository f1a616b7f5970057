// Drafters' files that were given and are not used: their mistakes are told all the same.
#pragma once

#include "base/result.h"
#include "gguf/reader.h"
#include "strata/engine.h"

namespace strata {

// Reads the headers of EngineOptions::unused_dflash and unused_mtp. Errors: as where they are
// loaded, but for what their values alone show.
Status check_unused_drafts(const EngineOptions& options, const gguf::File& model);

}  // namespace strata
