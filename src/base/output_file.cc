#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "base/checked.h"
#include "base/text.h"

namespace strata {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

// The permissions that a newly created file would have; mkstemp gives owner-only ones.
mode_t default_mode() {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    return 0666 & ~mask;
}

// Where `path` leads; a link to nowhere, or one of a circle, is its own last stop.
std::string behind_links(const std::string& path) {
    namespace fs = std::filesystem;
    constexpr int kLinksMax = 40;  // as the system allows
    fs::path at = path;
    for (int i = 0; i < kLinksMax; ++i) {
        std::error_code error;
        const fs::path to = fs::read_symlink(at, error);
        if (error) return at.string();
        at = to.is_absolute() ? to : at.parent_path() / to;
    }
    return path;
}

// Bytes that the file's disk has for us; the most there can be where it does not say.
std::uint64_t room_beside(int fd) {
    struct statvfs info {};
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
    if (::fstatvfs(fd, &info) != 0 || info.f_blocks == 0) return kMost;
    return checked_mul(info.f_bavail, info.f_frsize).value_or(kMost);
}

}  // namespace

Result<OutputFile> OutputFile::create(const std::string& path, std::uint64_t bytes) {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
        return STRATA_ERROR("cannot write ", quote(path), ": it exists and is not a regular file");
    }
    const std::string place = behind_links(path);
    std::string temporary = place + ".XXXXXX";
    const int fd = ::mkstemp(temporary.data());
    if (fd < 0) return STRATA_ERROR("cannot write ", quote(path), ": ", std::strerror(errno));
    OutputFile file(place, std::move(temporary), fd);
    ::fchmod(fd, default_mode());
    const std::uint64_t room = room_beside(fd);
    if (bytes > room) {
        return STRATA_ERROR("cannot write ", quote(path), ": it takes ", bytes,
                            " bytes, and its disk has ", room, " free");
    }
    return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      buffer_(std::move(other.buffer_)),
      size_(other.size_),
      fd_(std::exchange(other.fd_, -1)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
    if (this == &other) return *this;
    abandon();
    path_ = std::move(other.path_);
    temporary_ = std::move(other.temporary_);
    buffer_ = std::move(other.buffer_);
    size_ = other.size_;
    fd_ = std::exchange(other.fd_, -1);
    return *this;
}

OutputFile::~OutputFile() { abandon(); }

void OutputFile::abandon() noexcept {
    if (fd_ < 0) return;
    ::close(std::exchange(fd_, -1));
    ::unlink(temporary_.c_str());
}

Status OutputFile::write(std::span<const std::byte> bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    size_ += text.size();
    if (buffer_.size() + text.size() < kBufferBytes) {
        buffer_ += text;
        return Ok{};
    }
    STRATA_TRY(flush());
    if (text.size() >= kBufferBytes) return write_through(text);
    buffer_ = text;
    return Ok{};
}

Status OutputFile::write(std::string_view text) { return write(std::as_bytes(std::span(text))); }

Status OutputFile::flush() {
    STRATA_TRY(write_through(buffer_));
    buffer_.clear();
    return Ok{};
}

Status OutputFile::write_through(std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::write(fd_, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            return STRATA_ERROR("cannot write ", quote(path_), " (", size_,
                                " bytes so far): ", std::strerror(errno));
        }
        text.remove_prefix(static_cast<std::size_t>(n));
    }
    return Ok{};
}

Status OutputFile::commit() {
    STRATA_TRY(flush());
    if (::fsync(fd_) != 0) {
        return STRATA_ERROR("cannot write ", quote(path_), ": ", std::strerror(errno));
    }
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
        return STRATA_ERROR("cannot write ", quote(path_), ": ", std::strerror(errno));
    }
    ::close(std::exchange(fd_, -1));
    return Ok{};
}

bool same_place(const std::string& a, const std::string& b) {
    namespace fs = std::filesystem;
    const auto place = [](const std::string& path) {
        std::error_code ignored;
        const fs::path whole = fs::absolute(behind_links(path), ignored);
        const fs::path plain = fs::weakly_canonical(whole, ignored);
        return plain.empty() ? whole : plain;
    };
    return place(a) == place(b);
}

}  // namespace strata
