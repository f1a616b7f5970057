// One GGUF file by itself: its metadata and tensors, all checked.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "gguf/reader.h"

namespace strata::gguf {

struct Contents {
    std::vector<std::pair<std::string, Value>> metadata;
    std::vector<Tensor> tensors;  // their data in the bytes that were parsed

    // Null if there is none.
    const Value* find(std::string_view key) const;
};

// `bytes` are all of the file `path`. Errors name `path`, the thing in it, and what was wanted.
Result<Contents> parse_contents(const std::string& path, std::span<const std::byte> bytes);

struct Shard {
    MappedFile file;
    Contents contents;
};

// Errors: also those of opening the file.
Result<Shard> read_shard(const std::string& path);

}  // namespace strata::gguf
