#include "base/batch_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace strata {
namespace {

constexpr std::uint32_t kRow = 90;
constexpr std::int64_t kRows = 5000;

std::string random_bytes(std::size_t count) {
    test::Random random("file");
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.bits());
    return bytes;
}

class BatchReads : public ::testing::TestWithParam<ReadMethod> {
  protected:
    void SetUp() override {
        path_ = folder_ / "rows";
        bytes_ = random_bytes(kRow * kRows);
        test::write_file(path_, bytes_);
        auto reader = BatchReader::open(path_, GetParam());
        if (!reader.ok() && GetParam() == ReadMethod::io_uring) {
            GTEST_SKIP() << reader.error().message;
        }
        ASSERT_TRUE(reader.ok());
        reader_ = std::move(reader).value();
    }

    test::TempDir folder_;
    std::string path_;
    std::string bytes_;
    std::unique_ptr<BatchReader> reader_;
};

TEST_P(BatchReads, more_reads_than_fit_under_way_all_arrive) {
    test::Random random("rows");
    for (int round = 0; round < 3; ++round) {
        std::vector<std::byte> got(kRow * 2000);
        std::vector<FileRead> reads;
        for (std::uint32_t i = 0; i < 2000; ++i) {
            const auto row = static_cast<std::uint64_t>(random.integer(0, kRows - 1));
            reads.push_back({row * kRow, kRow, got.data() + i * kRow});
        }
        // In two starts, the second while the first is under way.
        reader_->start(std::span(reads).first(700));
        reader_->start(std::span(reads).subspan(700));
        ASSERT_TRUE(reader_->wait().ok());
        for (const FileRead& read : reads) {
            ASSERT_EQ(std::memcmp(read.to, bytes_.data() + read.offset, kRow), 0);
        }
    }
    EXPECT_TRUE(reader_->wait().ok());  // for nothing
}

TEST_P(BatchReads, a_file_that_ends_before_a_read_is_an_error_and_the_next_reads_work) {
    ASSERT_EQ(::truncate(path_.c_str(), kRow * 100 + 5), 0);
    std::vector<std::byte> got(kRow);
    const FileRead beyond{kRow * 100, kRow, got.data()};
    reader_->start(std::span(&beyond, 1));
    const Status status = reader_->wait();
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("ends at 9005, wanted 90 bytes at 9000"),
              std::string::npos)
        << status.error().message;
    const FileRead before{kRow * 99, kRow, got.data()};
    reader_->start(std::span(&before, 1));
    EXPECT_TRUE(reader_->wait().ok());
    EXPECT_EQ(std::memcmp(got.data(), bytes_.data() + kRow * 99, kRow), 0);
}

INSTANTIATE_TEST_SUITE_P(Methods, BatchReads,
                         ::testing::Values(ReadMethod::io_uring, ReadMethod::threads),
                         [](const auto& one) {
                             return one.param == ReadMethod::io_uring ? "io_uring" : "threads";
                         });

TEST(BatchReader, a_missing_file_is_an_error) {
    EXPECT_FALSE(BatchReader::open("/nonexistent/rows", ReadMethod::automatic).ok());
}

}  // namespace
}  // namespace strata
