#include "cli/guard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/text.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGgufMagic = "GGUF";

bool is_gguf(const std::string& path) {
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return false;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    std::array<char, kGgufMagic.size()> start{};
    const ssize_t n = ::read(fd, start.data(), start.size());
    ::close(fd);
    return n == static_cast<ssize_t>(start.size()) &&
           std::string_view(start.data(), start.size()) == kGgufMagic;
}

}  // namespace

Status guard_models(const std::string& output) {
    if (!is_gguf(output)) return Ok{};
    return STRATA_ERROR("output ", quote(output),
                        " is an existing GGUF file, and a model is never written over by other "
                        "data: another name is wanted");
}

Status guard_checkpoint(const std::string& output, const std::string& directory) {
    std::error_code error;
    if (!fs::exists(output, error) || is_gguf(output)) return Ok{};
    for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
         entry.increment(error)) {
        std::error_code unequal;
        if (fs::equivalent(entry->path(), output, unequal)) {
            return STRATA_ERROR("output ", quote(output), " is a file of the checkpoint ",
                                quote(directory), ": another name is wanted");
        }
    }
    return Ok{};
}

}  // namespace strata::cli
