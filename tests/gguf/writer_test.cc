#include "gguf/writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "gguf/reader.h"
#include "tests/support/temp_dir.h"

namespace strata::gguf {
namespace {

using test::TempDir;

std::vector<std::byte> counted(std::size_t n, int start) {
    std::vector<std::byte> bytes(n);
    for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(start + i * 7);
    return bytes;
}

Status add(Writer& writer, std::string_view name, quant::Type type,
           std::vector<std::uint64_t> shape) {
    return writer.add_tensor(name, type, shape);
}

// Every kind of metadata, and tensors whose sizes are no multiples of the alignment.
Status write_sample(const std::string& path) {
    Writer writer;
    writer.set("general.architecture", Value::string("sample"));
    writer.set("s.u8", Value::of(std::uint8_t{200}));
    writer.set("s.u64", Value::of(~std::uint64_t{0}));
    writer.set("s.f64", Value::of(0.1));
    writer.set("s.flag", Value::of(true));
    writer.set("s.ints", Value::array(std::vector<std::int32_t>{11, -1}));
    writer.set("s.words", Value::array(std::vector<std::string>{"", "Ġa", "東京"}));
    writer.set("s.none", Value::array(std::vector<float>{}));
    STRATA_TRY(add(writer, "a", quant::Type::f32, {3}));
    STRATA_TRY(add(writer, "b", quant::Type::q8_0, {32, 3}));
    STRATA_TRY(add(writer, "c", quant::Type::bf16, {5, 1, 2}));
    STRATA_TRY(writer.begin(path));
    const auto b = counted(102, 50);
    STRATA_TRY(writer.write_tensor_data(counted(12, 1)));
    STRATA_TRY(writer.write_tensor_data(std::span(b).first(1)));
    STRATA_TRY(writer.write_tensor_data({}));
    STRATA_TRY(writer.write_tensor_data(std::span(b).subspan(1)));
    STRATA_TRY(writer.write_tensor_data(counted(20, 99)));
    return writer.commit();
}

TEST(GgufWriter, the_reader_gives_back_what_was_written) {
    const TempDir dir;
    const Status status = write_sample(dir / "m.gguf");
    ASSERT_TRUE(status.ok()) << status.error().message;
    const auto file = File::open(dir / "m.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->metadata()[0].first, "general.architecture");
    EXPECT_EQ(file->metadata().back().first, "s.none");
    EXPECT_EQ(file->find("s.u8")->type(), ValueType::u8);
    EXPECT_EQ(file->find("s.u64")->as_uint(), ~std::uint64_t{0});
    EXPECT_EQ(file->find("s.f64")->as_float(), 0.1);
    EXPECT_EQ(file->find("s.flag")->as_bool(), true);
    EXPECT_EQ(file->find("s.ints")->as_ints(), (std::vector<std::int64_t>{11, -1}));
    EXPECT_EQ(file->find("s.words")->as_strings(),
              (std::vector<std::string_view>{"", "Ġa", "東京"}));
    EXPECT_EQ(file->find("s.none")->as_floats(), std::vector<float>{});
    EXPECT_TRUE(std::ranges::equal(file->find_tensor("a")->data, counted(12, 1)));
    EXPECT_TRUE(std::ranges::equal(file->find_tensor("b")->data, counted(102, 50)));
    EXPECT_TRUE(std::ranges::equal(file->find_tensor("c")->data, counted(20, 99)));
    EXPECT_EQ(file->find_tensor("c")->shape, (std::vector<std::uint64_t>{5, 1, 2}));
    for (const Tensor& tensor : file->tensors()) EXPECT_EQ(tensor.offset % 32, 0U);
    EXPECT_EQ(file->total_bytes() % 32, 0U);  // llama.cpp wants the last tensor padded too
}

TEST(GgufWriter, copying_a_file_key_by_key_and_tensor_by_tensor_gives_the_same_bytes) {
    const TempDir dir;
    const std::string source = STRATA_TEST_DATA "/package.gguf";
    const auto file = File::open(source);
    ASSERT_TRUE(file.ok());
    Writer writer;
    for (const auto& [key, value] : file->metadata()) writer.set(key, value);
    for (const Tensor& tensor : file->tensors()) {
        ASSERT_TRUE(writer.add_tensor(tensor.name, tensor.type, tensor.shape).ok());
    }
    ASSERT_TRUE(writer.begin(dir / "copy.gguf").ok());
    for (const Tensor& tensor : file->tensors()) {
        ASSERT_TRUE(writer.write_tensor_data(tensor.data).ok());
    }
    ASSERT_TRUE(writer.commit().ok());
    EXPECT_EQ(test::read_file(dir / "copy.gguf"), test::read_file(source));
}

TEST(GgufWriter, setting_a_key_again_replaces_it_in_place) {
    const TempDir dir;
    Writer writer;
    writer.set("a", Value::of(std::uint32_t{1}));
    writer.set("b", Value::of(std::uint32_t{2}));
    writer.set("a", Value::string("new"));
    ASSERT_TRUE(writer.begin(dir / "m.gguf").ok() && writer.commit().ok());
    const auto file = File::open(dir / "m.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_EQ(file->metadata().size(), 2U);
    EXPECT_EQ(file->metadata()[0].second.as_string(), "new");
}

TEST(GgufWriter, tensors_that_no_file_can_hold_are_refused) {
    Writer writer;
    const auto refused = [&](std::string_view name, std::vector<std::uint64_t> shape,
                             quant::Type type = quant::Type::f32) {
        return !writer.add_tensor(name, type, shape).ok();
    };
    EXPECT_TRUE(refused("", {1}));
    EXPECT_TRUE(refused(std::string(257, 'n'), {1}));
    EXPECT_TRUE(refused("t0", {}));
    EXPECT_TRUE(refused("t1", {1, 1, 1, 1, 1}));
    EXPECT_TRUE(refused("t2", {4, 0}));
    EXPECT_TRUE(refused("t3", {48}, quant::Type::q8_0));
    EXPECT_TRUE(refused("t4", {std::uint64_t{1} << 32, std::uint64_t{1} << 32}));
    EXPECT_TRUE(refused("t5", {std::uint64_t{1} << 61}));
    EXPECT_FALSE(refused("t6", {std::uint64_t{1} << 60}));
    EXPECT_TRUE(refused("t7", {std::uint64_t{1} << 60}));  // together more than a file can be
    EXPECT_FALSE(refused("same", {1}));
    EXPECT_TRUE(refused("same", {1}));
}

TEST(GgufWriter, data_must_be_as_long_as_declared) {
    const TempDir dir;
    {
        Writer writer;
        ASSERT_TRUE(add(writer, "a", quant::Type::f32, {2}).ok());
        ASSERT_TRUE(writer.begin(dir / "m.gguf").ok());
        const Status status = writer.write_tensor_data(counted(9, 0));
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().message.find("'a' was declared with 8 bytes"), std::string::npos);
    }
    {
        Writer writer;
        ASSERT_TRUE(add(writer, "a", quant::Type::f32, {2}).ok());
        ASSERT_TRUE(writer.begin(dir / "m.gguf").ok());
        ASSERT_TRUE(writer.write_tensor_data(counted(7, 0)).ok());
        const Status status = writer.commit();
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().message.find("has 7"), std::string::npos);
    }
    {
        Writer writer;
        ASSERT_TRUE(writer.begin(dir / "m.gguf").ok());
        EXPECT_FALSE(writer.write_tensor_data(counted(1, 0)).ok());
    }
    EXPECT_TRUE(dir.names().empty());
}

TEST(GgufWriter, keys_that_the_format_cannot_hold_are_refused) {
    const TempDir dir;
    for (const std::string& key : {std::string(), std::string(65536, 'k')}) {
        Writer writer;
        writer.set(key, Value::of(true));
        EXPECT_FALSE(writer.begin(dir / "m.gguf").ok());
    }
    Writer writer;
    writer.set("general.alignment", Value::of(std::uint32_t{64}));
    EXPECT_FALSE(writer.begin(dir / "m.gguf").ok());
    writer.set("general.alignment", Value::of(std::uint32_t{32}));
    EXPECT_TRUE(writer.begin(dir / "m.gguf").ok());
}

TEST(GgufWriter, a_path_that_cannot_be_written_is_an_error) {
    Writer writer;
    const Status status = writer.begin("/nonexistent/m.gguf");
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("/nonexistent/m.gguf"), std::string::npos);
}

}  // namespace
}  // namespace strata::gguf
