// Damaged checkpoints: an error or tensors that can be read, never a crash.
#include <gtest/gtest.h>

#include "safetensors/checkpoint.h"
#include "tests/fuzz/corrupt.h"
#include "tests/safetensors/raw.h"
#include "tests/support/temp_dir.h"

namespace strata::safetensors {
namespace {

using test::TempDir;

constexpr int kCorruptions = 5000;

bool opens(const std::string& directory) {
    const auto checkpoint = Checkpoint::open(directory);
    if (!checkpoint.ok()) {
        EXPECT_NE(checkpoint.error().message.find(directory), std::string::npos)
            << checkpoint.error().message;
        return false;
    }
    std::uint64_t sum = 0;
    for (const Tensor& tensor : checkpoint->tensors()) {
        EXPECT_EQ(checkpoint->find(tensor.name), &tensor);
        for (const std::byte byte : tensor.data) sum += static_cast<std::uint64_t>(byte);
        if (tensor.dtype == Dtype::other) continue;
        std::vector<float> values(tensor.elements());
        EXPECT_EQ(read_floats(tensor, 0, values).ok(), tensor.dtype != Dtype::i64);
        EXPECT_EQ(read_ints(tensor).ok(), tensor.dtype == Dtype::i64);
    }
    EXPECT_LT(sum, ~std::uint64_t{0});
    return true;
}

TEST(SafetensorsFuzz, a_file_cut_at_any_byte_is_an_error) {
    const TempDir dir;
    const std::string bytes = test::tiny_safetensors();
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        test::write_file(dir / "model.safetensors", std::string_view(bytes).substr(0, size));
        EXPECT_FALSE(opens(dir.path())) << size;
    }
    test::write_file(dir / "model.safetensors", bytes);
    EXPECT_TRUE(opens(dir.path()));
}

TEST(SafetensorsFuzz, random_damage_gives_an_error_or_tensors_that_can_be_read) {
    const TempDir dir;
    const std::string bytes = test::tiny_safetensors();
    std::mt19937_64 random(30);
    int opened = 0;
    for (int i = 0; i < kCorruptions; ++i) {
        test::write_file(dir / "model.safetensors", test::corrupted(bytes, random));
        opened += opens(dir.path());
    }
    EXPECT_GT(opened, kCorruptions / 100);
    EXPECT_LT(opened, kCorruptions / 2);
}

TEST(SafetensorsFuzz, a_damaged_index_gives_an_error_or_tensors_that_can_be_read) {
    const TempDir dir;
    test::write_file(dir / "one.safetensors", test::tiny_safetensors());
    const std::string index =
        R"({"metadata":{"total_size":47},"weight_map":{"a":"one.safetensors",)"
        R"("b":"one.safetensors","c":"one.safetensors"}})";
    const std::string path = dir / "model.safetensors.index.json";
    for (std::size_t size = 0; size < index.size(); ++size) {
        test::write_file(path, std::string_view(index).substr(0, size));
        EXPECT_FALSE(opens(dir.path())) << size;
    }
    std::mt19937_64 random(31);
    for (int i = 0; i < kCorruptions; ++i) {
        test::write_file(path, test::corrupted(index, random));
        (void)opens(dir.path());
    }
    test::write_file(path, index);
    EXPECT_TRUE(opens(dir.path()));
}

}  // namespace
}  // namespace strata::safetensors
