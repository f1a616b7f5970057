// One safetensors file by itself: 8 bytes of header length, a JSON header, the data.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "safetensors/checkpoint.h"

namespace strata::safetensors {

// `bytes` are all of the file `path`. The tensors come in the order of their names, their data in
// `bytes`. Errors name the file and the tensor.
Result<std::vector<Tensor>> parse_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace strata::safetensors
