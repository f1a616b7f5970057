// Sizes of real models: vocabularies of hundreds of thousands, offsets beyond 32 bits.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

#include "gguf/reader.h"
#include "tests/gguf/raw.h"
#include "tests/support/temp_dir.h"

namespace strata::gguf {
namespace {

using test::raw;
using test::RawGguf;
using test::TempDir;
using test::write_file;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// Sanitizers check every access of every string.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSlowdown = 20;
#else
constexpr int kSlowdown = 1;
#endif

// GGUF-12. The limit is the case's own; an optimized build takes a few hundredths of it.
TEST(GgufLarge, a_vocabulary_of_250k_and_500k_merges_is_read_within_a_second) {
    constexpr auto kLimit = std::chrono::seconds(1);
    const TempDir dir;
    std::vector<std::string> tokens;
    std::vector<std::string> merges;
    for (int i = 0; i < 250'000; ++i) tokens.push_back("token" + std::to_string(i));
    for (int i = 0; i < 500'000; ++i) merges.push_back("to " + std::to_string(i));
    RawGguf raw_file = test::tiny_gguf();
    raw_file.pairs.push_back({"tokenizer.ggml.tokens", 9, test::raw_strings(tokens)});
    raw_file.pairs.push_back({"tokenizer.ggml.merges", 9, test::raw_strings(merges)});
    write_file(dir / "m.gguf", raw_file.bytes());
    const auto start = std::chrono::steady_clock::now();
    const auto file = File::open(dir / "m.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    const auto read_tokens = require_strings(*file, "tokenizer.ggml.tokens");
    const auto read_merges = require_strings(*file, "tokenizer.ggml.merges");
    const auto taken = std::chrono::steady_clock::now() - start;
    ASSERT_TRUE(read_tokens.ok() && read_merges.ok());
    ASSERT_EQ(read_tokens->size(), tokens.size());
    EXPECT_EQ((*read_tokens)[249'999], tokens.back());
    EXPECT_EQ((*read_merges)[499'999], merges.back());
    EXPECT_LT(taken, kLimit * kSlowdown);
}

// A file of `size` bytes that begins with `head` and ends with `tail`, with a hole between; false
// if the file system takes no such file.
bool write_sparse(const std::string& path, const std::string& head, const std::string& tail,
                  std::uint64_t size) {
    write_file(path, head);
    if (::truncate(path.c_str(), static_cast<off_t>(size)) != 0) return false;
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    const auto at = static_cast<off_t>(size - tail.size());
    const bool written =
        ::pwrite(fd, tail.data(), tail.size(), at) == static_cast<ssize_t>(tail.size());
    ::close(fd);
    return written;
}

// WIN-03
TEST(GgufLarge, tensors_beyond_and_longer_than_four_gibibytes_are_whole) {
    const TempDir dir;
    RawGguf raw_file;
    // An n-gram table of 2^31 + 64 values (Q8_0: 2.1 GiB), a tensor of more than 4 GiB behind it,
    // and a last one whose offset needs more than 32 bits.
    const std::uint64_t table = ((std::uint64_t{1} << 31) + 64) / 32 * 34;
    const std::uint64_t wide = 4 * kGiB + 4096;
    const std::uint64_t second = (table + 31) / 32 * 32;
    raw_file.tensors = {{"table", {32, (std::uint64_t{1} << 26) + 2}, 8, 0, ""},
                        {"wide", {wide / 4}, 0, second, ""},
                        {"last", {2}, 0, second + wide, ""}};
    const std::string head = raw_file.bytes();
    const std::string tail = raw(1.5f) + raw(-2.5f);
    const std::uint64_t size = head.size() + second + wide + tail.size();
    if (!write_sparse(dir / "m.gguf", head, tail, size)) {
        GTEST_SKIP() << "the file system takes no sparse file of " << size << " bytes";
    }
    const auto file = File::open(dir / "m.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->total_bytes(), size);
    EXPECT_EQ(file->find_tensor("table")->elements(), (std::uint64_t{1} << 31) + 64);
    EXPECT_EQ(file->find_tensor("table")->data.size(), table);
    EXPECT_EQ(file->find_tensor("wide")->data.size(), wide);
    EXPECT_EQ(file->find_tensor("wide")->data.back(), std::byte{0});
    const Tensor& last = *file->find_tensor("last");
    EXPECT_GT(last.offset, 6 * kGiB);
    std::vector<float> values(2);
    quant::info(last.type).decode(last.data.data(), values.data(), 2);
    EXPECT_EQ(values, (std::vector<float>{1.5f, -2.5f}));
    ASSERT_EQ(::truncate((dir / "m.gguf").c_str(), static_cast<off_t>(size - 1)), 0);
    EXPECT_FALSE(File::open(dir / "m.gguf").ok());
}

TEST(GgufLarge, an_array_that_fills_a_large_file_is_refused_before_it_is_copied) {
    const TempDir dir;
    RawGguf raw_file;
    raw_file.pairs = {{"huge", 9, raw(std::uint32_t{0}) + raw(3 * kGiB)}};
    if (!write_sparse(dir / "m.gguf", raw_file.bytes(), "x", 4 * kGiB)) {
        GTEST_SKIP() << "the file system takes no sparse file of 4 GiB";
    }
    const auto file = File::open(dir / "m.gguf");
    ASSERT_FALSE(file.ok());
    EXPECT_NE(file.error().message.find("header"), std::string::npos) << file.error().message;
}

}  // namespace
}  // namespace strata::gguf
