// A DFlash2 draft's checkpoint to a GGUF file of architecture dflash.
#pragma once

#include <string>

#include "base/result.h"
#include "convert/convert.h"
#include "gguf/writer.h"
#include "model/config.h"

namespace strata::convert {

// Whether config.json at `path` describes a DFlash2 draft. Error: it cannot be read.
Result<bool> is_draft(const std::string& path);

// The sizes of a drafter's target, a checkpoint's directory or a GGUF file, and its tokenizer into
// the file. Error: it cannot be read.
Result<model::Config> take_target(const std::string& target, gguf::Writer& writer);

// Matrices of the backbone are written in options.types.type, norms and convolution kernels in F32,
// what else there is in BF16. Errors: as convert_checkpoint; a type for a part that drafts do not
// have; a target that the draft does not fit.
Status convert_draft(const ConvertOptions& options);

}  // namespace strata::convert
