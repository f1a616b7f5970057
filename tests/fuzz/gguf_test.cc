// Damaged GGUF files: an error or contents whose every value and tensor can be read, never a crash.
// Each is parsed in memory of its exact size, where a sanitizer sees any byte read past the end.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "gguf/shard.h"
#include "tests/fuzz/corrupt.h"
#include "tests/gguf/raw.h"
#include "tests/support/temp_dir.h"

namespace strata::gguf {
namespace {

using test::TempDir;

constexpr int kCorruptions = 4'000;  // of each sample

std::uint64_t read_value(const Value& value) {
    std::uint64_t sum = value.as_uint().value_or(0) + value.as_bool().value_or(false);
    sum += static_cast<std::uint64_t>(value.as_int().value_or(0));
    sum += value.as_float().has_value() + value.as_string().value_or("").size();
    if (const auto numbers = value.as_uints()) sum += numbers->size();
    if (const auto numbers = value.as_ints()) sum += numbers->size();
    if (const auto numbers = value.as_floats()) sum += numbers->size();
    if (const auto flags = value.as_bools()) sum += flags->size();
    for (const auto text : value.as_strings().value_or(std::vector<std::string_view>{})) {
        for (const char c : text) sum += static_cast<unsigned char>(c);
    }
    return sum;
}

std::uint64_t read_tensor(const Tensor& tensor) {
    std::uint64_t sum = 0;
    for (const std::byte byte : tensor.data) sum += static_cast<std::uint64_t>(byte);
    const quant::TypeInfo& format = quant::info(tensor.type);
    EXPECT_EQ(tensor.data.size(), tensor.elements() / format.block * format.block_bytes);
    if (format.decode == nullptr) return sum;
    std::vector<float> row(tensor.shape[0]);
    format.decode(tensor.data.data(), row.data(), static_cast<std::int64_t>(row.size()));
    return sum;
}

// Whether `bytes` parse; then everything in them is read too. An error is one line naming the file.
bool parses(std::string_view bytes) {
    const std::vector<char> exact(bytes.begin(), bytes.end());
    const auto contents = parse_contents("m.gguf", std::as_bytes(std::span(exact)));
    if (!contents.ok()) {
        EXPECT_NE(contents.error().message.find("'m.gguf'"), std::string::npos);
        EXPECT_EQ(contents.error().message.find('\n'), std::string::npos);
        return false;
    }
    std::uint64_t sum = 0;
    for (const auto& [key, value] : contents->metadata) sum += read_value(value);
    for (const Tensor& tensor : contents->tensors) sum += read_tensor(tensor);
    EXPECT_NE(sum, ~std::uint64_t{0});
    return true;
}

std::vector<std::string> samples() {
    const std::string data = std::string(STRATA_TEST_DATA);
    return {test::tiny_gguf().bytes(), test::read_file(data + "/package.gguf"),
            test::read_file(data + "/aligned.gguf")};
}

// Where the data of the last tensor ends; what follows is padding.
std::size_t data_end(const std::string& bytes) {
    const auto contents = parse_contents("m.gguf", std::as_bytes(std::span(bytes)));
    std::size_t end = 0;
    for (const Tensor& tensor : contents.value().tensors) {
        end = std::max<std::size_t>(end, tensor.offset + tensor.data.size());
    }
    return end;
}

TEST(GgufFuzz, a_file_cut_at_any_byte_is_an_error) {
    for (const std::string& bytes : samples()) {
        const std::size_t end = data_end(bytes);
        for (std::size_t size = 0; size <= bytes.size(); ++size) {
            EXPECT_EQ(parses(std::string_view(bytes).substr(0, size)), size >= end) << size;
        }
    }
}

TEST(GgufFuzz, random_damage_gives_an_error_or_contents_that_can_be_read) {
    std::mt19937_64 random(20);
    int parsed = 0;
    for (const std::string& bytes : samples()) {
        for (int i = 0; i < kCorruptions; ++i) parsed += parses(test::corrupted(bytes, random));
    }
    // Damage to values and data alone is invisible: some files parse, and most do not.
    EXPECT_GT(parsed, kCorruptions / 50);
    EXPECT_LT(parsed, kCorruptions * 2);
}

TEST(GgufFuzz, damage_to_one_part_of_a_set_is_found_through_any_part) {
    const TempDir dir;
    const auto name = [](int i) { return concat("split-0000", i + 1, "-of-00003.gguf"); };
    std::string parts[3];
    for (int i = 0; i < 3; ++i) {
        parts[i] = test::read_file(STRATA_TEST_DATA "/" + name(i));
        test::write_file(dir / name(i), parts[i]);
    }
    std::mt19937_64 random(21);
    for (int i = 0; i < 60; ++i) {
        const int damaged = i % 3;
        test::write_file(dir / name(damaged), test::corrupted(parts[damaged], random));
        const auto file = File::open(dir / name(static_cast<int>(random() % 3)));
        if (!file.ok()) {
            EXPECT_NE(file.error().message.find(dir.path()), std::string::npos);
        }
        test::write_file(dir / name(damaged), parts[damaged]);
    }
    EXPECT_TRUE(File::open(dir / name(1)).ok());
}

}  // namespace
}  // namespace strata::gguf
