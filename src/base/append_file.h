// A file that grows by whole pieces: after an error it ends where the last whole piece ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace strata {

// Movable. One process at a time has a path open. A file that it made and that stayed empty goes
// with it.
class AppendFile {
  public:
    // Makes the file where there is none. Errors: not a regular file, not writable, open elsewhere.
    static Result<AppendFile> open(const std::string& path);

    AppendFile(AppendFile&& other) noexcept;
    AppendFile& operator=(AppendFile&& other) noexcept;
    AppendFile(const AppendFile&) = delete;
    AppendFile& operator=(const AppendFile&) = delete;
    ~AppendFile();

    const std::string& path() const { return path_; }
    std::uint64_t size() const { return size_; }
    // Error, after which the file is as it was: the disk is full, or another reason.
    Status append(std::span<const std::byte> bytes);
    // Cuts the file to `size` bytes, at most size().
    Status truncate(std::uint64_t size);

  private:
    AppendFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

    std::string path_;
    int fd_ = -1;
    std::uint64_t size_ = 0;
    bool made_ = false;
};

}  // namespace strata
