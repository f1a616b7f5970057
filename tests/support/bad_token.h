// Models that give no numbers.
#pragma once

#include <filesystem>
#include <fstream>
#include <ios>
#include <string>

#include "gguf/reader.h"
#include "tests/support/temp_dir.h"

namespace strata::test {

// The model with a token whose embedding is NaN, in a file of its own.
inline std::string with_a_bad_token(const std::string& model, const TempDir& folder,
                                    std::int64_t token) {
    const std::string path = folder / "bad.gguf";
    std::filesystem::copy_file(model, path);
    const gguf::File file = gguf::File::open(model).value();
    const gguf::Tensor& table = *file.find_tensor("token_embd.weight");
    const auto row = table.data.size() / table.shape[1];
    std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(
        static_cast<std::streamoff>(table.offset + static_cast<std::uint64_t>(token) * row));
    bytes << std::string(row, '\xff');
    return path;
}

}  // namespace strata::test
