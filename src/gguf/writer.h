// Writing a GGUF v3 file in one pass: metadata and tensors are declared, then the data streams
// through, so a file of any size takes little memory. The file appears whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "gguf/value.h"
#include "quant/type.h"

namespace strata::gguf {

// set() and add_tensor() in any order, then begin(), then each tensor's data in the order of
// declaration, then commit(). Destroyed before that it leaves nothing behind. After an error only
// destruction makes sense.
class Writer {
  public:
    // Keys are written in the order in which they are first set; setting one again replaces it.
    void set(std::string_view key, Value value);
    // `shape` in GGUF's order (row width first). Errors: a name that is empty, too long or taken, a
    // shape or size that the format cannot hold, a row that the type's block does not divide.
    Status add_tensor(std::string_view name, quant::Type type,
                      std::span<const std::uint64_t> shape);

    // Opens `path` and writes everything but the data. Errors: a key that is empty or too long, a
    // general.alignment other than 32, the file cannot be written, its disk has no room for all of
    // it.
    Status begin(const std::string& path);
    // The next bytes of the tensor data: a tensor may come in pieces, and a piece may not reach
    // into the next tensor. Errors: more bytes than declared, the file cannot be written.
    Status write_tensor_data(std::span<const std::byte> bytes);
    // Errors: tensor data is missing, the file cannot be written.
    Status commit();

  private:
    struct Declared {
        std::string name;
        quant::Type type;
        std::vector<std::uint64_t> shape;
        std::uint64_t bytes;
    };
    std::string header() const;
    Status check_keys() const;

    std::vector<std::pair<std::string, Value>> metadata_;
    std::vector<Declared> tensors_;
    std::unordered_set<std::string> names_;  // of tensors_
    std::uint64_t data_bytes_ = 0;           // of tensors_, padding included
    std::optional<OutputFile> out_;
    std::size_t current_ = 0;         // the tensor whose data is being written
    std::uint64_t current_done_ = 0;  // bytes of it
};

}  // namespace strata::gguf
