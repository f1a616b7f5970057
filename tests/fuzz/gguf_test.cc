// Damaged GGUF files: an error or a file whose every value and tensor can be read, never a crash.
#include <gtest/gtest.h>

#include <algorithm>

#include "gguf/reader.h"
#include "tests/fuzz/corrupt.h"
#include "tests/gguf/raw.h"
#include "tests/support/temp_dir.h"

namespace strata::gguf {
namespace {

using test::TempDir;

constexpr int kCorruptions = 5000;

// Touches all that an open file offers, so that a sanitizer sees every byte it points to.
std::uint64_t read_everything(const File& file) {
    std::uint64_t sum = 0;
    for (const auto& [key, value] : file.metadata()) {
        sum += value.as_uint().value_or(0) + value.as_bool().value_or(false);
        sum += static_cast<std::uint64_t>(value.as_int().value_or(0));
        sum += value.as_float().has_value() + value.as_string().value_or("").size();
        if (const auto numbers = value.as_uints()) sum += numbers->size();
        if (const auto numbers = value.as_ints()) sum += numbers->size();
        if (const auto numbers = value.as_floats()) sum += numbers->size();
        if (const auto flags = value.as_bools()) sum += flags->size();
        for (const auto text : value.as_strings().value_or(std::vector<std::string_view>{})) {
            for (const char c : text) sum += static_cast<unsigned char>(c);
        }
        EXPECT_EQ(file.find(key), &value);
    }
    for (const Tensor& tensor : file.tensors()) {
        EXPECT_EQ(file.find_tensor(tensor.name), &tensor);
        for (const std::byte byte : tensor.data) sum += static_cast<std::uint64_t>(byte);
        const quant::TypeInfo& format = quant::info(tensor.type);
        if (format.decode == nullptr) continue;
        std::vector<float> row(tensor.shape[0]);
        format.decode(tensor.data.data(), row.data(), static_cast<std::int64_t>(row.size()));
    }
    return sum;
}

// Whether it opens. An error is one line that names the file.
bool opens(const std::string& path) {
    const auto file = File::open(path);
    if (file.ok()) {
        EXPECT_LT(read_everything(*file), ~std::uint64_t{0});
        return true;
    }
    EXPECT_NE(file.error().message.find(path), std::string::npos) << file.error().message;
    EXPECT_EQ(file.error().message.find('\n'), std::string::npos) << file.error().message;
    return false;
}

std::vector<std::string> samples() {
    const std::string data = std::string(STRATA_TEST_DATA);
    return {test::tiny_gguf().bytes(), test::read_file(data + "/package.gguf"),
            test::read_file(data + "/aligned.gguf")};
}

TEST(GgufFuzz, a_file_cut_at_any_byte_is_an_error) {
    const TempDir dir;
    for (const std::string& bytes : samples()) {
        test::write_file(dir / "whole.gguf", bytes);
        const auto whole = File::open(dir / "whole.gguf");
        ASSERT_TRUE(whole.ok()) << whole.error().message;
        std::uint64_t end = 0;  // of the last tensor: what follows is padding
        for (const Tensor& tensor : whole->tensors()) {
            end = std::max<std::uint64_t>(end, tensor.offset + tensor.data.size());
        }
        for (std::size_t size = 0; size < bytes.size(); ++size) {
            test::write_file(dir / "m.gguf", std::string_view(bytes).substr(0, size));
            EXPECT_EQ(opens(dir / "m.gguf"), size >= end) << size;
        }
    }
}

TEST(GgufFuzz, random_damage_gives_an_error_or_a_file_that_can_be_read) {
    const TempDir dir;
    std::mt19937_64 random(20);
    int opened = 0;
    for (const std::string& bytes : samples()) {
        for (int i = 0; i < kCorruptions; ++i) {
            test::write_file(dir / "m.gguf", test::corrupted(bytes, random));
            opened += opens(dir / "m.gguf");
        }
    }
    // Damage to values and data alone is invisible: some files open, and most do not.
    EXPECT_GT(opened, kCorruptions / 50);
    EXPECT_LT(opened, kCorruptions * 2);
}

TEST(GgufFuzz, damage_to_one_part_of_a_set_is_found_through_any_part) {
    const TempDir dir;
    const std::string data = std::string(STRATA_TEST_DATA) + "/split-0000";
    const std::string parts[] = {test::read_file(data + "1-of-00003.gguf"),
                                 test::read_file(data + "2-of-00003.gguf"),
                                 test::read_file(data + "3-of-00003.gguf")};
    const auto path = [&](int i) {
        return dir / ("m-0000" + std::to_string(i + 1) + "-of-00003.gguf");
    };
    for (int i = 0; i < 3; ++i) test::write_file(path(i), parts[i]);
    std::mt19937_64 random(21);
    for (int i = 0; i < 2000; ++i) {
        const int damaged = i % 3;
        test::write_file(path(damaged), test::corrupted(parts[damaged], random));
        const auto file = File::open(path(static_cast<int>(random() % 3)));
        if (file.ok()) {
            EXPECT_LT(read_everything(*file), ~std::uint64_t{0});
        } else {
            EXPECT_NE(file.error().message.find(dir.path()), std::string::npos)
                << file.error().message;
        }
        test::write_file(path(damaged), parts[damaged]);
    }
    EXPECT_TRUE(File::open(path(1)).ok());
}

}  // namespace
}  // namespace strata::gguf
