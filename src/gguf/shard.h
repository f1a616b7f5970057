// One GGUF file by itself: its metadata and tensors, all checked.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "gguf/reader.h"

namespace strata::gguf {

struct Shard {
    MappedFile file;
    std::vector<std::pair<std::string, Value>> metadata;
    std::vector<Tensor> tensors;

    // Null if there is none.
    const Value* find(std::string_view key) const;
};

// Errors name `path`, the thing in it, and what was wanted.
Result<Shard> read_shard(const std::string& path);

}  // namespace strata::gguf
