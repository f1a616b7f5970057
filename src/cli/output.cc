#include "cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace strata::cli {
namespace {

constexpr std::int64_t kBarWidth = 40;
constexpr std::size_t kToldBytesMax = 4096;  // of a message
// Returns to the start of the line and clears it.
constexpr std::string_view kClearLine = "\r\x1b[K";

bool gone = false;
bool bar_shown = false;

// 0, or the error's number.
int write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::write(fd, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        text.remove_prefix(static_cast<std::size_t>(n));
    }
    return 0;
}

// Whatever is written begins on a line of its own.
void clear_bar() {
    if (std::exchange(bar_shown, false)) write_all(STDERR_FILENO, kClearLine);
}

}  // namespace

Status print(std::string_view text) {
    clear_bar();
    const int error = write_all(STDOUT_FILENO, text);
    if (error == 0) return Ok{};
    gone = gone || error == EPIPE;
    return STRATA_ERROR("cannot write to standard output: ", std::strerror(error));
}

bool reader_gone() { return gone; }

bool errors_on_terminal() { return ::isatty(STDERR_FILENO) == 1; }

void note(std::string_view text) {
    if (errors_on_terminal()) warn(text);
}

void warn(std::string_view text) {
    clear_bar();
    write_all(STDERR_FILENO, text);
}

void tell(const std::string& message) {
    // A failed write has nobody to tell.
    const std::string_view told = std::string_view(message).substr(0, kToldBytesMax);
    warn(concat("strata: ", escaped(told), told.size() < message.size() ? "...\n" : "\n"));
}

Progress::Progress(std::string what) : what_(std::move(what)), terminal_(errors_on_terminal()) {}

Progress::~Progress() { clear_bar(); }

void Progress::show(std::int64_t done, std::int64_t total) {
    if (!terminal_ || total <= 0) return;
    const std::int64_t percent = std::clamp<std::int64_t>(done * 100 / total, 0, 100);
    if (percent == shown_) return;
    shown_ = percent;
    const auto filled = static_cast<std::size_t>(percent * kBarWidth / 100);
    std::string bar(filled, '#');
    bar.resize(kBarWidth, '.');
    bar_shown = true;
    write_all(STDERR_FILENO, concat(kClearLine, what_, " [", bar, "] ", percent, " %"));
}

}  // namespace strata::cli
