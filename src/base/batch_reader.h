// Many small reads of one file under way at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace strata {

// `bytes` bytes from `offset` of the file to `to`, which stays valid until the read is done.
struct FileRead {
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;
    std::byte* to = nullptr;
};

enum class ReadMethod : std::uint8_t {
    automatic,  // io_uring where the system has it and lets this process use it, else threads
    io_uring,
    threads,
};

// Not for concurrent use. The destructor waits for what is under way.
class BatchReader {
  public:
    // Errors: the file cannot be opened, io_uring was asked for and is not to be had.
    static Result<std::unique_ptr<BatchReader>> open(const std::string& path, ReadMethod method);

    virtual ~BatchReader() = default;

    // Starts reads and returns while they run; what was started before goes on.
    virtual void start(std::span<const FileRead> reads) = 0;
    // Returns when all reads are done. Error: one of them failed, or the file ended before it;
    // then what the reads were to fill is not to be relied on.
    virtual Status wait() = 0;
    virtual ReadMethod method() const = 0;
};

}  // namespace strata
