// One safetensors file by itself: 8 bytes of header length, a JSON header, the data.
#pragma once

#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "safetensors/checkpoint.h"

namespace strata::safetensors {

// The tensors in the order of their names, their data in `file`. Errors name the file and the
// tensor.
Result<std::vector<Tensor>> read_header(const MappedFile& file);

}  // namespace strata::safetensors
