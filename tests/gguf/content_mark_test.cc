#include "gguf/content_mark.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gguf/writer.h"
#include "tests/support/temp_dir.h"

namespace strata::gguf {
namespace {

using test::TempDir;

// The mark of a file of one tensor that has the key, and whose byte `at` is 1, the others 0.
std::string mark_of(const std::string& key, std::size_t at) {
    const TempDir folder;
    Writer writer;
    writer.set("general.architecture", Value::string("sample"));
    writer.set(key, Value::of(std::uint16_t{1}));
    constexpr std::uint64_t kValues = 1024;
    std::vector<std::byte> data(kValues * sizeof(float));
    data[at] = std::byte{1};
    EXPECT_TRUE(writer.add_tensor("a", quant::Type::f32, std::vector<std::uint64_t>{kValues}).ok());
    EXPECT_TRUE(writer.begin(folder / "m.gguf").ok());
    EXPECT_TRUE(writer.write_tensor_data(data).ok());
    EXPECT_TRUE(writer.commit().ok());
    return content_mark(File::open(folder / "m.gguf").value());
}

TEST(ContentMark, weights_and_numbers_change_it_and_names_tokens_and_parts_do_not) {
    const std::string mark = mark_of("general.version", 0);
    EXPECT_EQ(mark.size(), 8U);
    EXPECT_EQ(mark_of("tokenizer.ggml.padding_token_id", 0), mark);
    EXPECT_EQ(mark_of("split.count", 0), mark);
    EXPECT_NE(mark_of("sample.block_count", 0), mark);
    EXPECT_NE(mark_of("general.version", 1023), mark);
}

}  // namespace
}  // namespace strata::gguf
