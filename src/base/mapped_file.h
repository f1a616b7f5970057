// A file mapped for reading.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace strata {

// Owns the mapping; the bytes stay valid and unmoved until it is destroyed. Movable.
class MappedFile {
  public:
    // Errors: no such file, not a regular file, not readable, cannot be mapped. An empty file maps
    // to an empty span.
    static Result<MappedFile> open(const std::string& path);

    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    const std::string& path() const { return path_; }

  private:
    MappedFile(std::string path, const std::byte* data, std::size_t size)
        : path_(std::move(path)), data_(data), size_(size) {}

    std::string path_;
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

// Tells the system that what lies next to a byte read of `mapped`, a part of a mapped file, is not
// worth fetching with it. Changes the speed alone.
void expect_scattered_reads(std::span<const std::byte> mapped);

// Gives the memory of a part of a mapped file back; what is read again comes from the file again.
void forget_pages(std::span<const std::byte> mapped);

}  // namespace strata
