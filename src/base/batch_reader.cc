#include "base/batch_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/read_methods.h"
#include "base/text.h"

namespace strata {

Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Descriptor::~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
}

Error read_failed(const std::string& path, const FileRead& read, int error) {
    return STRATA_ERROR(quote(path), ": cannot read ", read.bytes, " bytes at ", read.offset, ": ",
                        std::strerror(error));
}

Error file_ended(const std::string& path, const FileRead& read, std::uint64_t at) {
    return STRATA_ERROR(quote(path), " ends at ", at, ", wanted ", read.bytes, " bytes at ",
                        read.offset);
}

Result<std::unique_ptr<BatchReader>> BatchReader::open(const std::string& path, ReadMethod method) {
    Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0)
        return STRATA_ERROR("cannot open ", quote(path), ": ", std::strerror(errno));
    // Reads lie anywhere: what comes after one is not worth fetching. Failure costs speed alone.
    (void)::posix_fadvise(file.get(), 0, 0, POSIX_FADV_RANDOM);
    if (method != ReadMethod::threads) {
        std::unique_ptr<BatchReader> reader = make_uring_reader(path, file);
        if (reader != nullptr) return reader;
        if (method == ReadMethod::io_uring) {
            return STRATA_ERROR(quote(path), ": this system gives no io_uring to read it with");
        }
    }
    return make_thread_reader(path, std::move(file));
}

}  // namespace strata
