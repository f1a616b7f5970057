#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <utility>

#include "tests/support/temp_dir.h"

namespace strata {
namespace {

using test::TempDir;
using test::write_file;

std::string text(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
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

TEST(MappedFile, forgotten_pages_come_back_from_the_file) {
    const TempDir dir;
    const std::string large(1 << 20, 'x');
    write_file(dir / "file", large);
    const auto file = MappedFile::open(dir / "file");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(text(*file), large);
    forget_pages(file->bytes().subspan(1, large.size() - 1));
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
