#include "base/append_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace strata {

Result<AppendFile> AppendFile::open(const std::string& path) {
    constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK;
    constexpr mode_t kMode = S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;
    int fd = ::open(path.c_str(), kFlags | O_EXCL, kMode);
    const bool made = fd >= 0;
    if (!made) fd = ::open(path.c_str(), kFlags, kMode);
    if (fd < 0) return STRATA_ERROR("cannot write ", quote(path), ": ", std::strerror(errno));
    AppendFile file(path, fd);
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return STRATA_ERROR("cannot write ", quote(path), ": it is not a regular file");
    }
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
        return STRATA_ERROR("cannot write ", quote(path), ": another process is writing it");
    }
    file.size_ = static_cast<std::uint64_t>(info.st_size);
    file.made_ = made;  // from now on: without the lock it may be another's
    return file;
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      made_(other.made_) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    std::swap(size_, other.size_);
    std::swap(made_, other.made_);
    return *this;
}

AppendFile::~AppendFile() {
    if (fd_ < 0) return;
    if (made_ && size_ == 0) ::unlink(path_.c_str());
    ::close(fd_);
}

Status AppendFile::append(std::span<const std::byte> bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t n = ::write(fd_, bytes.data() + done, bytes.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            const std::string why = std::strerror(errno);
            STRATA_TRY(truncate(size_));
            return STRATA_ERROR("cannot write ", quote(path_), " (", size_,
                                " bytes so far): ", why);
        }
        done += static_cast<std::size_t>(n);
    }
    size_ += bytes.size();
    return Ok{};
}

Status AppendFile::truncate(std::uint64_t size) {
    STRATA_CHECK(size <= size_);
    if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) {
        return STRATA_ERROR("cannot write ", quote(path_), ": ", std::strerror(errno));
    }
    size_ = size;
    return Ok{};
}

}  // namespace strata
