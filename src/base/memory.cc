#include "base/memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>

namespace strata {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// The number after `key` at the start of a line.
std::optional<std::uint64_t> field(const std::string& path, const std::string& key) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
        if (!line.starts_with(key)) continue;
        const std::size_t digit = line.find_first_of("0123456789", key.size());
        std::uint64_t value = 0;
        if (digit == std::string::npos) return std::nullopt;
        const auto [end, error] =
            std::from_chars(line.data() + digit, line.data() + line.size(), value);
        return error == std::errc() ? std::optional(value) : std::nullopt;
    }
    return std::nullopt;
}

// A file of one number; none where it says "max" or is not there.
std::optional<std::uint64_t> number(const std::string& path) { return field(path, ""); }

// What one group leaves: its limit less what is used in it, files' pages that can go not counted.
std::uint64_t left_in(const std::string& group) {
    const auto limit = number(group + "/memory.max");
    const auto used = number(group + "/memory.current");
    if (!limit || !used) return kUnlimited;
    const std::uint64_t files = field(group + "/memory.stat", "inactive_file ").value_or(0) +
                                field(group + "/memory.stat", "active_file ").value_or(0);
    const std::uint64_t held = *used - std::min(*used, files);
    return *limit - std::min(*limit, held);
}

// The path of this process's group (version 2) below the mount; empty for the topmost.
std::string own_group(const std::string& root) {
    std::ifstream file(root + "/proc/self/cgroup");
    std::string line;
    while (std::getline(file, line)) {
        if (!line.starts_with("0::/")) continue;
        const std::string path = line.substr(3);
        return path == "/" ? "" : path;
    }
    return "";
}

}  // namespace

std::uint64_t available_memory(const std::string& root) {
    std::uint64_t least = kUnlimited;
    if (const auto kilobytes = field(root + "/proc/meminfo", "MemAvailable:")) {
        least = *kilobytes * 1024;
    }
    // A limit holds for all below it.
    for (std::string group = own_group(root);; group.resize(group.rfind('/'))) {
        least = std::min(least, left_in(root + "/sys/fs/cgroup" + group));
        if (group.empty()) return least;
    }
}

}  // namespace strata
