// Damaged checkpoints: an error or tensors that can be read, never a crash.
#include <gtest/gtest.h>

#include "safetensors/checkpoint.h"
#include "safetensors/header.h"
#include "tests/fuzz/corrupt.h"
#include "tests/safetensors/raw.h"
#include "tests/support/temp_dir.h"

namespace strata::safetensors {
namespace {

using test::TempDir;

constexpr int kCorruptions = 6'000;

// Whether `bytes` parse; then every value in them is read too. Parsed in memory of the exact size,
// where a sanitizer sees any byte read past the end.
bool parses(std::string_view bytes) {
    const std::vector<char> exact(bytes.begin(), bytes.end());
    const auto tensors = parse_file("m.safetensors", std::as_bytes(std::span(exact)));
    if (!tensors.ok()) {
        EXPECT_NE(tensors.error().message.find("'m.safetensors'"), std::string::npos);
        EXPECT_EQ(tensors.error().message.find('\n'), std::string::npos);
        return false;
    }
    std::uint64_t sum = 0;
    for (const Tensor& tensor : *tensors) {
        for (const std::byte byte : tensor.data) sum += static_cast<std::uint64_t>(byte);
        if (tensor.dtype == Dtype::other) continue;
        std::vector<float> values(tensor.elements());
        EXPECT_EQ(read_floats(tensor, 0, values).ok(), tensor.dtype != Dtype::i64);
        EXPECT_EQ(read_ints(tensor).ok(), tensor.dtype == Dtype::i64);
    }
    EXPECT_NE(sum, ~std::uint64_t{0});
    return true;
}

TEST(SafetensorsFuzz, a_file_cut_at_any_byte_is_an_error) {
    const std::string bytes = test::tiny_safetensors();
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_FALSE(parses(std::string_view(bytes).substr(0, size))) << size;
    }
    EXPECT_TRUE(parses(bytes));
}

TEST(SafetensorsFuzz, random_damage_gives_an_error_or_tensors_that_can_be_read) {
    const std::string bytes = test::tiny_safetensors();
    std::mt19937_64 random(30);
    int parsed = 0;
    for (int i = 0; i < kCorruptions; ++i) parsed += parses(test::corrupted(bytes, random));
    EXPECT_GT(parsed, kCorruptions / 100);
    EXPECT_LT(parsed, kCorruptions / 2);
}

TEST(SafetensorsFuzz, a_damaged_index_gives_an_error_or_tensors_that_can_be_read) {
    const TempDir dir;
    test::write_file(dir / "one.safetensors", test::tiny_safetensors());
    const std::string index =
        R"({"metadata":{"total_size":47},"weight_map":{"a":"one.safetensors",)"
        R"("b":"one.safetensors","c":"one.safetensors"}})";
    const std::string path = dir / "model.safetensors.index.json";
    const auto opens = [&](std::string_view text) {
        test::write_file(path, text);
        const auto checkpoint = Checkpoint::open(dir.path());
        if (!checkpoint.ok()) {
            EXPECT_NE(checkpoint.error().message.find(dir.path()), std::string::npos);
        }
        return checkpoint.ok();
    };
    for (std::size_t size = 0; size < index.size(); ++size) {
        EXPECT_FALSE(opens(std::string_view(index).substr(0, size))) << size;
    }
    std::mt19937_64 random(31);
    for (int i = 0; i < 200; ++i) (void)opens(test::corrupted(index, random));
    EXPECT_TRUE(opens(index));
}

}  // namespace
}  // namespace strata::safetensors
