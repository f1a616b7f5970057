#include "base/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "base/text.h"

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

// How a version of control groups spells itself.
struct Version {
    const char* line;  // of /proc/self/cgroup, before the group's path
    const char* mount;
    const char* limit;
    const char* used;
    const char* inactive_files;
    const char* active_files;
};

constexpr Version kVersions[] = {
    {"0::", "/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file ", "active_file "},
    {":memory:", "/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
     "total_inactive_file ", "total_active_file "}};

// What one group leaves: its limit less what is used in it, files' pages that can go not counted.
std::uint64_t left_in(const Version& version, const std::string& group) {
    const auto limit = number(group + version.limit);
    const auto used = number(group + version.used);
    if (!limit || !used) return kUnlimited;
    const std::string stat = group + "/memory.stat";
    const std::uint64_t files = field(stat, version.inactive_files).value_or(0) +
                                field(stat, version.active_files).value_or(0);
    const std::uint64_t held = *used - std::min(*used, files);
    return *limit - std::min(*limit, held);
}

// The path of this process's group below the mount; empty for the topmost.
std::string own_group(const Version& version, const std::string& root) {
    std::ifstream file(root + "/proc/self/cgroup");
    std::string line;
    while (std::getline(file, line)) {
        const std::size_t at = line.find(version.line);
        if (at == std::string::npos) continue;
        const std::string path = line.substr(at + std::string_view(version.line).size());
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
    for (const Version& version : kVersions) {
        // A limit holds for all below it.
        std::string group = own_group(version, root);
        while (true) {
            least = std::min(least, left_in(version, root + version.mount + group));
            const std::size_t slash = group.rfind('/');
            if (slash == std::string::npos) break;
            group.resize(slash);
        }
    }
    return least;
}

std::string memory_left() {
    const std::string left = concat(available_memory(), " bytes are available");
    rlimit limit{};
    if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return left;
    return concat(left, ", and the process may map ", limit.rlim_cur, " bytes in all");
}

}  // namespace strata
