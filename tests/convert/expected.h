// The GGUF tensors that a checkpoint in the layout of HfCheckpoint::random must give, written from
// model.md 3.3 one formula at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/convert/hf_checkpoint.h"

namespace strata::test {

std::map<std::string, std::vector<float>> expected_tensors(const HfCheckpoint& checkpoint);

}  // namespace strata::test
