// What commands share that write a GGUF file from others.
#pragma once

#include <string>

#include "base/result.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

namespace strata::convert {

// Error: `output` is a file of `input`, by name or as the system sees it.
Status check_not_input(const gguf::File& input, const std::string& output);

// All keys but those that tell of the input's split and alignment.
void copy_metadata(const gguf::File& file, gguf::Writer& writer);

}  // namespace strata::convert
