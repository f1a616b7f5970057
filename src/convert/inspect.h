// What is in a GGUF file, of this model or any other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/reader.h"

namespace strata::convert {

struct ClassSize {
    std::string name;
    std::uint64_t tensors = 0;
    std::uint64_t elements = 0;
    std::uint64_t bytes = 0;
    std::vector<std::string> types;  // "Q8_0", ... by first use
};

struct Inspection {
    gguf::File file;
    std::string architecture;  // empty where the file names none
    // In a fixed order, only those with tensors; their bytes add up to all tensor data.
    std::vector<ClassSize> classes;
    // What a complete model of the architecture has and this file has not or has otherwise, a
    // sentence each. No value: the architecture is neither qwen4exp nor dflash, so this
    // is not known.
    std::optional<std::vector<std::string>> lacks;
    // Parts that a model may go without and this one does: a tokenizer, a chat template, ...
    std::vector<std::string> without;
};

// Errors: as gguf::File::open.
Result<Inspection> inspect(const std::string& path);

// One object: file, files, architecture, metadata, classes, lacks (null where not known), without,
// and with `tensors` a list of them. A metadata value is {"type", "value"}, or {"type", "count",
// "first"} where it is a list of more than 64.
std::string inspection_json(const Inspection& inspection, bool tensors);

// The same for a person: a table of classes, then metadata, then with `tensors` a line each.
std::string inspection_text(const Inspection& inspection, bool tensors);

}  // namespace strata::convert
