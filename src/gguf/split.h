// Names of the files of a split set, and what a path given by a person stands for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace strata::gguf {

// Part `number` (from 1) of `count`: <prefix>-00002-of-00003.gguf.
struct SplitName {
    std::string prefix;  // with the directory
    std::uint64_t number = 0;
    std::uint64_t count = 0;
};

// Empty if `path` has no such form.
std::optional<SplitName> parse_split_name(std::string_view path);

std::string part_path(const SplitName& name, std::uint64_t number);

// `path` itself, or the file (of a set: its first part that is there) in the directory `path`.
// Errors: the directory cannot be read, or holds no or several models.
Result<std::string> model_file(const std::string& path);

// Where the parts of the set of `path` may lie: named like `path` and, if that is a link, like the
// file that it leads to. Empty if neither has the form of a part's name.
std::vector<SplitName> split_names(const std::string& path);

// The file of part `number`, in the first of `names` that has one; empty if none has.
std::optional<std::string> find_part(const std::vector<SplitName>& names, std::uint64_t number);

}  // namespace strata::gguf
