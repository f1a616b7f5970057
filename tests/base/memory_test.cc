#include "base/memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "tests/support/temp_dir.h"

namespace strata {
namespace {

using test::TempDir;
using test::write_file;

// A machine with 1 MiB free and a process in the group /a/b.
class Memory : public ::testing::Test {
  protected:
    Memory() {
        std::filesystem::create_directories(dir_ / "proc/self");
        std::filesystem::create_directories(dir_ / "sys/fs/cgroup/a/b");
        write_file(dir_ / "proc/meminfo", "MemTotal: 4096 kB\nMemAvailable:    1024 kB\n");
        write_file(dir_ / "proc/self/cgroup", "0::/a/b\n");
    }
    void group(const std::string& path, const std::string& limit, const std::string& used,
               const std::string& files) const {
        const std::string at = dir_ / ("sys/fs/cgroup" + path);
        write_file(at + "/memory.max", limit + "\n");
        write_file(at + "/memory.current", used + "\n");
        write_file(at + "/memory.stat", "anon 7\ninactive_file " + files + "\nactive_file 5\n");
    }
    TempDir dir_;
};

TEST_F(Memory, is_what_the_system_can_give) {
    EXPECT_EQ(available_memory(dir_.path()), 1024u * 1024u);
    EXPECT_GT(available_memory(), 0u);
}

TEST_F(Memory, is_bounded_by_every_group_above_the_process) {
    group("/a/b", "max", "100", "0");
    EXPECT_EQ(available_memory(dir_.path()), 1024u * 1024u);
    group("/a", "5000", "4000", "1000");
    EXPECT_EQ(available_memory(dir_.path()), 5000u - (4000u - 1005u));
    group("", "1000", "900", "0");
    EXPECT_EQ(available_memory(dir_.path()), 1000u - (900u - 5u));
    group("", "1000", "2000", "0");
    EXPECT_EQ(available_memory(dir_.path()), 0u);
}

TEST_F(Memory, is_bounded_by_groups_of_the_first_version_too) {
    write_file(dir_ / "proc/self/cgroup", "5:cpu:/x\n4:memory:/c\n0::/\n");
    std::filesystem::create_directories(dir_ / "sys/fs/cgroup/memory/c");
    const auto group = [&](const std::string& path, const std::string& limit) {
        const std::string at = dir_ / ("sys/fs/cgroup/memory" + path);
        write_file(at + "/memory.limit_in_bytes", limit + "\n");
        write_file(at + "/memory.usage_in_bytes", "600\n");
        write_file(at + "/memory.stat", "inactive_file 1\ntotal_inactive_file 200\n");
    };
    group("", "9223372036854771712");
    group("/c", "1000");
    EXPECT_EQ(available_memory(dir_.path()), 1000u - (600u - 200u));
    group("/c", "9223372036854771712");
    EXPECT_EQ(available_memory(dir_.path()), 1024u * 1024u);
}

TEST(NoMemoryFiles, are_no_limit) {
    const TempDir dir;
    EXPECT_EQ(available_memory(dir.path()), std::numeric_limits<std::uint64_t>::max());
}

}  // namespace
}  // namespace strata
