// What commands share that write a GGUF file from others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/result.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

namespace strata::convert {

// Error: `output` is a file of `input`, by name or as the system sees it.
Status check_not_input(const gguf::File& input, const std::string& output);

// All keys but those that tell of the input's split and alignment.
void copy_metadata(const gguf::File& file, gguf::Writer& writer);

// Values that are decoded and encoded at a time, unless one row has more.
inline constexpr std::uint64_t kPieceValues = std::uint64_t{1} << 20;

// Bytes written and in all. False ends the work.
using RewriteProgress = std::function<bool(std::uint64_t done, std::uint64_t total)>;

// The data of a begun file, a piece at a time, the caller told after each.
class TensorData {
  public:
    // Both outlive it. `total` bytes are to be written.
    TensorData(gguf::Writer& writer, const RewriteProgress& progress, std::uint64_t total)
        : writer_(writer), progress_(progress), total_(total) {}

    // Errors: the file cannot be written, the caller wants no more.
    Status write(std::span<const std::byte> bytes);
    // The same, of any length.
    Status copy(std::span<const std::byte> bytes);

  private:
    gguf::Writer& writer_;
    const RewriteProgress& progress_;
    std::uint64_t done_ = 0;
    std::uint64_t total_;
};

}  // namespace strata::convert
