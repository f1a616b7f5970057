#include "base/output_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <utility>

#include "tests/support/temp_dir.h"

namespace strata {
namespace {

using test::read_file;
using test::TempDir;
using test::write_file;

TEST(OutputFile, a_committed_file_holds_what_was_written) {
    const TempDir dir;
    const std::string path = dir / "out.bin";
    std::string wanted;
    {
        auto out = OutputFile::create(path);
        ASSERT_TRUE(out.ok()) << out.error().message;
        for (int i = 0; i < 300; ++i) {
            const std::string piece(static_cast<std::size_t>(i) * 37, static_cast<char>(i));
            ASSERT_TRUE(out->write(piece).ok());
            wanted += piece;
        }
        EXPECT_EQ(out->size(), wanted.size());
        ASSERT_TRUE(out->commit().ok());
    }
    EXPECT_EQ(read_file(path), wanted);
    EXPECT_EQ(dir.names(), std::vector<std::string>{"out.bin"});
}

TEST(OutputFile, one_write_of_many_megabytes_arrives_whole) {
    const TempDir dir;
    std::string wanted(5'000'001, '\0');
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<char>(i * 31 >> 3);
    auto out = OutputFile::create(dir / "out.bin");
    ASSERT_TRUE(out.ok());
    ASSERT_TRUE(out->write("head").ok());
    ASSERT_TRUE(out->write(wanted).ok());
    ASSERT_TRUE(out->write("tail").ok());
    ASSERT_TRUE(out->commit().ok());
    EXPECT_EQ(read_file(dir / "out.bin"), "head" + wanted + "tail");
}

TEST(OutputFile, a_symbolic_link_stays_one_and_the_file_appears_where_it_points) {
    const TempDir dir;
    std::filesystem::create_directory(dir / "far");
    std::filesystem::create_symlink("far/new.bin", dir / "dangling");
    std::filesystem::create_symlink(dir / "far/old.bin", dir / "far/inner");
    std::filesystem::create_symlink("far/inner", dir / "chain");
    write_file(dir / "far/old.bin", "old");
    for (const char* link : {"dangling", "chain"}) {
        auto out = OutputFile::create(dir / link);
        ASSERT_TRUE(out.ok()) << out.error().message;
        ASSERT_TRUE(out->write("new").ok());
        ASSERT_TRUE(out->commit().ok());
        EXPECT_TRUE(std::filesystem::is_symlink(dir / link));
    }
    EXPECT_EQ(read_file(dir / "far/new.bin"), "new");
    EXPECT_EQ(read_file(dir / "far/old.bin"), "new");
    std::filesystem::create_symlink("b", dir / "a");
    std::filesystem::create_symlink("a", dir / "b");
    auto circle = OutputFile::create(dir / "a");
    EXPECT_TRUE(!circle.ok() || circle->commit().ok());
}

TEST(OutputFile, a_file_for_which_its_disk_has_no_room_is_refused_before_it_is_written) {
    const TempDir dir;
    const auto out = OutputFile::create(dir / "out.bin", std::uint64_t{1} << 62);
    ASSERT_FALSE(out.ok());
    EXPECT_NE(out.error().message.find("4611686018427387904 bytes"), std::string::npos)
        << out.error().message;
    EXPECT_NE(out.error().message.find(" free"), std::string::npos);
    EXPECT_TRUE(dir.names().empty());
    EXPECT_TRUE(OutputFile::create(dir / "out.bin", 1000).ok());
}

TEST(OutputFile, nothing_stays_behind_without_a_commit) {
    const TempDir dir;
    {
        auto out = OutputFile::create(dir / "out.bin");
        ASSERT_TRUE(out.ok());
        ASSERT_TRUE(out->write(std::string(3'000'000, 'x')).ok());
    }
    EXPECT_TRUE(dir.names().empty());
}

TEST(OutputFile, an_existing_file_keeps_its_contents_until_the_commit) {
    const TempDir dir;
    const std::string path = dir / "out.bin";
    write_file(path, "old");
    {
        auto out = OutputFile::create(path);
        ASSERT_TRUE(out.ok());
        ASSERT_TRUE(out->write("new").ok());
    }
    EXPECT_EQ(read_file(path), "old");
    auto out = OutputFile::create(path);
    ASSERT_TRUE(out.ok());
    ASSERT_TRUE(out->write("new").ok());
    EXPECT_EQ(read_file(path), "old");
    ASSERT_TRUE(out->commit().ok());
    EXPECT_EQ(read_file(path), "new");
}

TEST(OutputFile, moving_it_moves_the_duty_to_clean_up) {
    const TempDir dir;
    auto first = OutputFile::create(dir / "first");
    auto second = OutputFile::create(dir / "second");
    ASSERT_TRUE(first.ok() && second.ok());
    ASSERT_TRUE(second->write("2").ok());
    *first = std::move(*second);
    EXPECT_EQ(dir.names().size(), 1U);  // the first is abandoned
    OutputFile last(std::move(*first));
    ASSERT_TRUE(last.commit().ok());
    EXPECT_EQ(dir.names(), std::vector<std::string>{"second"});
    EXPECT_EQ(read_file(dir / "second"), "2");
}

TEST(OutputFile, the_file_gets_the_permissions_of_any_new_file) {
    const TempDir dir;
    const mode_t before = ::umask(022);
    auto out = OutputFile::create(dir / "out.bin");
    ASSERT_TRUE(out.ok() && out->commit().ok());
    ::umask(before);
    struct stat info {};
    ASSERT_EQ(::stat((dir / "out.bin").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0644U);
}

TEST(OutputFile, a_directory_that_is_not_there_is_an_error_that_names_the_file) {
    const TempDir dir;
    const auto out = OutputFile::create(dir / "missing/out.bin");
    ASSERT_FALSE(out.ok());
    EXPECT_NE(out.error().message.find("missing/out.bin"), std::string::npos);
}

TEST(OutputFile, a_directory_that_may_not_be_written_is_an_error) {
    // A process with root's rights may write everywhere but in a kernel file system.
    const TempDir dir;
    ASSERT_EQ(::chmod(dir.path().c_str(), 0555), 0);
    const std::string path = ::geteuid() == 0 ? "/proc/out.bin" : dir / "out.bin";
    const auto out = OutputFile::create(path);
    ::chmod(dir.path().c_str(), 0755);
    ASSERT_FALSE(out.ok());
    EXPECT_NE(out.error().message.find(path), std::string::npos);
}

TEST(OutputFile, a_directory_or_device_of_that_name_is_an_error) {
    const TempDir dir;
    EXPECT_FALSE(OutputFile::create(dir.path()).ok());
    EXPECT_FALSE(OutputFile::create("/dev/full").ok());
}

// Runs in a child whose files may not grow past 2 MiB, which is how a full disk looks to it. Tells
// by its exit status whether write() or commit() gave an error.
int write_with_a_full_disk(const std::string& path, std::size_t bytes) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit = {std::size_t{2} << 20, std::size_t{2} << 20};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(9);
        int status = 0;
        {
            auto out = OutputFile::create(path);
            if (!out.ok()) ::_exit(8);
            if (!out->write(std::string(bytes, 'x')).ok()) {
                status = 1;
            } else if (!out->commit().ok()) {
                status = 2;
            }
        }
        ::_exit(status);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(OutputFile, a_full_disk_is_an_error_and_leaves_nothing_behind) {
    const TempDir dir;
    EXPECT_EQ(write_with_a_full_disk(dir / "out.bin", std::size_t{3} << 20), 1);
    EXPECT_TRUE(dir.names().empty());
}

TEST(OutputFile, a_disk_that_fills_up_leaves_the_old_file_alone) {
    const TempDir dir;
    write_file(dir / "out.bin", "old");
    EXPECT_EQ(write_with_a_full_disk(dir / "out.bin", std::size_t{3} << 20), 1);
    EXPECT_EQ(dir.names(), std::vector<std::string>{"out.bin"});
    EXPECT_EQ(read_file(dir / "out.bin"), "old");
    EXPECT_EQ(write_with_a_full_disk(dir / "out.bin", std::size_t{1} << 19), 0);
}

}  // namespace
}  // namespace strata
