// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace strata {

// Writes beside `path` and renames on commit(); destroyed before commit it leaves nothing behind.
// Where `path` is a symbolic link, all of this happens where it points, whether there is a file yet
// or not. Movable. After an error only destruction makes sense.
class OutputFile {
  public:
    // `bytes`: how long the file will be at least. Errors: it cannot be written, or its disk has
    // not that much room.
    static Result<OutputFile> create(const std::string& path, std::uint64_t bytes = 0);

    OutputFile(OutputFile&& other) noexcept;
    OutputFile& operator=(OutputFile&& other) noexcept;
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;
    ~OutputFile();

    Status write(std::span<const std::byte> bytes);
    Status write(std::string_view text);
    // Bytes written so far.
    std::uint64_t size() const { return size_; }
    // Flushes to the disk, then takes the name `path`.
    Status commit();

  private:
    OutputFile(std::string path, std::string temporary, int fd)
        : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}
    Status flush();
    Status write_through(std::string_view text);
    void abandon() noexcept;

    std::string path_;
    std::string temporary_;
    std::string buffer_;
    std::uint64_t size_ = 0;
    int fd_ = -1;
};

// Whether files of these names would be one file, there yet or not.
bool same_place(const std::string& a, const std::string& b);

}  // namespace strata
