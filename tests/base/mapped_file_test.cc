#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "tests/support/temp_dir.h"

namespace strata {
namespace {

using test::TempDir;
using test::write_file;

std::string text(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// KiB of the mapping that `at` lies in that this process holds in memory; -1: not known.
std::int64_t resident_kib(const std::byte* at) {
    const auto wanted = reinterpret_cast<std::uintptr_t>(at);
    std::ifstream maps("/proc/self/smaps");
    bool inside = false;
    for (std::string line; std::getline(maps, line);) {
        std::istringstream words(line);
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        char dash = 0;
        if (words >> std::hex >> begin >> dash >> end && dash == '-') {
            inside = begin <= wanted && wanted < end;
        } else if (inside && line.starts_with("Rss:")) {
            return std::stoll(line.substr(4));
        }
    }
    return -1;
}

TEST(MappedFile, shows_the_bytes_of_the_file) {
    const TempDir dir;
    const std::string path = dir / "naïve 東京 file";
    write_file(path, std::string_view("a\0b", 3));
    const auto file = MappedFile::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(text(*file), std::string("a\0b", 3));
    EXPECT_EQ(file->path(), path);
}

TEST(MappedFile, an_empty_file_has_no_bytes) {
    const TempDir dir;
    write_file(dir / "empty", "");
    const auto file = MappedFile::open(dir / "empty");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFile, bytes_stay_where_they_are_when_it_is_moved) {
    const TempDir dir;
    write_file(dir / "a", "first");
    write_file(dir / "b", "second");
    auto first = MappedFile::open(dir / "a");
    auto second = MappedFile::open(dir / "b");
    ASSERT_TRUE(first.ok() && second.ok());
    const std::byte* where = first->bytes().data();
    MappedFile moved(std::move(*first));
    EXPECT_EQ(moved.bytes().data(), where);
    *second = std::move(moved);
    EXPECT_EQ(second->bytes().data(), where);
    EXPECT_EQ(text(*second), "first");
}

TEST(MappedFile, forgotten_pages_leave_memory_and_come_back_from_the_file) {
    const TempDir dir;
    const std::string large(1 << 20, 'x');
    write_file(dir / "file", large);
    const auto file = MappedFile::open(dir / "file");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(text(*file), large);
    const std::int64_t before = resident_kib(file->bytes().data());
    forget_pages(file->bytes().subspan(1, large.size() - 1));
    if (before >= 0) {
        EXPECT_GE(before, 512);
        EXPECT_LE(resident_kib(file->bytes().data()), 64) << "the first page alone";
    }
    EXPECT_EQ(text(*file), large);
}

TEST(MappedFile, what_is_no_readable_file_is_an_error_that_names_it) {
    const TempDir dir;
    ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
    for (const std::string& path :
         {dir / "missing", dir.path(), dir / "pipe", std::string("/dev/zero")}) {
        const auto file = MappedFile::open(path);
        ASSERT_FALSE(file.ok()) << path;
        EXPECT_NE(file.error().message.find(path), std::string::npos) << file.error().message;
    }
}

}  // namespace
}  // namespace strata
