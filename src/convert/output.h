// The tensors of a file that is being written: declared, then streamed from their recipes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "convert/convert.h"
#include "convert/recipe.h"
#include "gguf/writer.h"

namespace strata::convert {

struct Output {
    Recipe recipe;
    quant::Type type = quant::Type::f32;
    std::uint64_t row_bytes = 0;
};

// Error: a row width that the type's block does not divide.
Result<Output> declare(Recipe recipe, quant::Type type, gguf::Writer& writer);

// general.name, general.file_type and general.quantization_version.
void set_general_keys(const ConvertOptions& options, gguf::Writer& writer);

// Begins the file, writes every tensor in the order of declaration, and commits. Errors: a value
// that the type cannot hold, an unwritable output, the caller wants no more.
Status write_outputs(const ConvertOptions& options, const std::vector<Output>& outputs,
                     gguf::Writer& writer);

}  // namespace strata::convert
