// What a draft checkpoint's config.json says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "spec/dflash/config.h"

namespace strata::convert {

inline constexpr std::string_view kDraftArchitecture = "DFlash2DraftModel";

// Reads `path`. dflash_config's keys may stand at the top level as well. Errors: a key missing, of
// the wrong type, out of range or given twice with different values; a value of a known key that
// this version does not compute; sizes that contradict each other.
Result<dflash::Config> read_draft_config(const std::string& path);

}  // namespace strata::convert
