// Outputs that must not be written over.
#pragma once

#include <string>

#include "base/result.h"

namespace strata::cli {

// Error: `output` exists and is the model file, or any GGUF file: a part of a split model or the
// file that a folder stands for is worth as much.
Status guard_models(const std::string& output);

// Error: `output` is one of the files of a checkpoint folder, other than a GGUF file.
Status guard_checkpoint(const std::string& output, const std::string& directory);

}  // namespace strata::cli
