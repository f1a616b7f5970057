// A DFlash2 draft's checkpoint to a GGUF file of architecture dflash.
#pragma once

#include <string>

#include "base/result.h"
#include "convert/convert.h"
#include "gguf/writer.h"
#include "model/config.h"
#include "quant/type.h"
#include "spec/dflash/config.h"
#include "spec/dflash/tensors.h"

namespace strata::convert {

// Whether config.json at `path` describes a DFlash2 draft. Error: it cannot be read.
Result<bool> is_draft(const std::string& path);

// general.architecture and every dflash.* key.
void set_draft_keys(const dflash::Config& config, gguf::Writer& writer);

// What a draft of ours has its tensor in, where its matrices are to be of `type`. Error: a row
// width that the type's block does not divide.
Result<quant::Type> draft_type(quant::Type type, const dflash::TensorSpec& spec);

// The sizes of a drafter's target, a checkpoint's directory or a GGUF file, and its tokenizer into
// the file. Error: it cannot be read.
Result<model::Config> take_target(const std::string& target, gguf::Writer& writer);

// Matrices of the backbone are written in options.types.type, norms and convolution kernels in F32,
// what else there is in BF16. Errors: as convert_checkpoint; a type for a part that drafts do not
// have; a target that the draft does not fit.
Status convert_draft(const ConvertOptions& options);

}  // namespace strata::convert
