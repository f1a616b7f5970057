// The ways in which a BatchReader can work; private to this folder.
#pragma once

#include <memory>
#include <string>

#include "base/batch_reader.h"

namespace strata {

// An open file descriptor, closed with this.
class Descriptor {
  public:
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept;
    Descriptor& operator=(Descriptor&&) = delete;
    ~Descriptor();
    int get() const { return fd_; }

  private:
    int fd_;
};

Error read_failed(const std::string& path, const FileRead& read, int error);
Error file_ended(const std::string& path, const FileRead& read, std::uint64_t at);

// Null where the system has no io_uring that this process may use.
std::unique_ptr<BatchReader> make_uring_reader(const std::string& path, Descriptor& file);
std::unique_ptr<BatchReader> make_thread_reader(const std::string& path, Descriptor file);

}  // namespace strata
