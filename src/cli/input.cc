#include "cli/input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/text.h"

namespace strata::cli {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;

// Closes what it opened.
class Descriptor {
  public:
    Descriptor(int fd, bool owned) : fd_(fd), owned_(owned) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
        if (owned_ && fd_ >= 0) ::close(fd_);
    }
    int get() const { return fd_; }

  private:
    int fd_;
    bool owned_;
};

}  // namespace

Result<std::string> read_text(const std::string& path) {
    const bool standard = path == "-";
    const Descriptor file(standard ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC),
                          !standard);
    const std::string name = standard ? "standard input" : concat("file ", quote(path));
    if (file.get() < 0) return STRATA_ERROR("cannot read ", name, ": ", std::strerror(errno));
    std::string text;
    std::vector<char> buffer(kReadBytes);
    while (true) {
        const ssize_t n = ::read(file.get(), buffer.data(), buffer.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return STRATA_ERROR("cannot read ", name, ": ", std::strerror(errno));
        if (n == 0) return text;
        text.append(buffer.data(), static_cast<std::size_t>(n));
        if (text.size() > kTextBytesMax) {
            return STRATA_ERROR(name, " is longer than the ", kTextBytesMax,
                                " bytes that are read at most");
        }
    }
}

bool LineReader::take(std::string* line) {
    const std::size_t at = buffer_.find('\n', searched_);
    if (at == std::string::npos) {
        searched_ = buffer_.size();
        if (!ended_ || buffer_.empty()) return false;
        *line = std::move(buffer_);
        buffer_.clear();
    } else {
        *line = buffer_.substr(0, at);
        buffer_.erase(0, at + 1);
    }
    searched_ = 0;
    if (!line->empty() && line->back() == '\r') line->pop_back();
    return true;
}

Result<LineReader::Got> LineReader::next(std::string* line) {
    std::vector<char> chunk(kReadBytes);
    while (true) {
        if (take(line)) {
            const bool dropped = std::exchange(dropping_, false);
            if (!dropped && line->size() <= kLineBytesMax) return Got::line;
            line->clear();
            return Got::too_long;
        }
        if (ended_) return std::exchange(dropping_, false) ? Got::too_long : Got::end;
        if (buffer_.size() > kLineBytesMax) {
            dropping_ = true;
            buffer_.clear();
            searched_ = 0;
        }
        const ssize_t n = ::read(STDIN_FILENO, chunk.data(), chunk.size());
        if (n < 0 && errno == EINTR) return Got::interrupted;
        if (n < 0) return STRATA_ERROR("cannot read standard input: ", std::strerror(errno));
        ended_ = n == 0;
        buffer_.append(chunk.data(), static_cast<std::size_t>(n));
    }
}

}  // namespace strata::cli
