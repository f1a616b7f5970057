// Which tensors of a checkpoint each GGUF tensor is made of (model.md 3.3): the one place that
// knows both sets of names and the order of the delta nets' value heads in each.
#pragma once

#include <vector>

#include "base/result.h"
#include "convert/hf_config.h"
#include "convert/recipe.h"
#include "convert/source.h"

namespace strata::convert {

// Completes config.model.ngram from the checkpoint's hash tensors, or from config.json where there
// are none. Nothing to do for a model without an n-gram table.
Status complete_hash(HfConfig& config, Source& source);

// One recipe for each tensor of model::tensor_list(config.model), in its order, without
// output.weight where embeddings are tied, and of the MTP layer alone where the checkpoint has no
// more. Every tensor of the checkpoint has been checked against
// the shape that the configuration gives it. Errors: as Source, and tensors that are left over.
Result<std::vector<Recipe>> make_recipes(const HfConfig& config, Source& source);

}  // namespace strata::convert
