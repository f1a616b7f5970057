#include "gguf/reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "tests/gguf/raw.h"
#include "tests/support/temp_dir.h"

namespace strata::gguf {
namespace {

using test::raw;
using test::raw_strings;
using test::raw_text;
using test::RawGguf;
using test::TempDir;
using test::tiny_gguf;
using test::write_file;

const std::string kData = STRATA_TEST_DATA;

// What opening a file of these bytes says; empty if it opens.
std::string error_of(const std::string& bytes) {
    const TempDir dir;
    write_file(dir / "m.gguf", bytes);
    const auto file = File::open(dir / "m.gguf");
    if (file.ok()) return "";
    EXPECT_NE(file.error().message.find(dir / "m.gguf"), std::string::npos)
        << "does not name the file: " << file.error().message;
    return file.error().message;
}

void expect_error(const RawGguf& raw_file, const std::vector<std::string>& words) {
    const std::string message = error_of(raw_file.bytes());
    EXPECT_NE(message, "") << "accepted; wanted an error with '" << words[0] << "'";
    for (const std::string& word : words) {
        EXPECT_NE(message.find(word), std::string::npos) << word << " is not in: " << message;
    }
}

std::vector<float> floats(const Tensor& tensor) {
    std::vector<float> values(tensor.elements());
    quant::info(tensor.type)
        .decode(tensor.data.data(), values.data(), static_cast<std::int64_t>(values.size()));
    return values;
}

TEST(GgufReader, reads_metadata_and_tensors) {
    const TempDir dir;
    write_file(dir / "m.gguf", tiny_gguf().bytes());
    auto opened = File::open(dir / "m.gguf");
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const File file = std::move(opened).value();  // what it points to survives the move
    ASSERT_EQ(file.metadata().size(), 6U);
    EXPECT_EQ(file.metadata()[0].first, "general.architecture");
    EXPECT_EQ(file.find("tiny.block_count")->as_uint(), 2U);
    EXPECT_EQ(file.find("tiny.nothing"), nullptr);
    ASSERT_EQ(file.tensors().size(), 2U);
    const Tensor* x = file.find_tensor("x.weight");
    ASSERT_NE(x, nullptr);
    EXPECT_EQ(x->shape, (std::vector<std::uint64_t>{4, 2}));
    EXPECT_EQ(x->dimension(1), 2U);
    EXPECT_EQ(x->dimension(2), 1U);
    EXPECT_EQ(floats(*x), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(file.find_tensor("y.weight")->data.size(), 34U);
    EXPECT_EQ(file.find_tensor("z.weight"), nullptr);
    EXPECT_EQ(file.paths().size(), 1U);
    EXPECT_EQ(file.total_bytes(), std::filesystem::file_size(dir / "m.gguf"));
}

TEST(GgufReader, reads_what_the_public_package_wrote) {
    const auto file = File::open(kData + "/package.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->find("t.u8")->as_uint(), 200U);
    EXPECT_EQ(file->find("t.i8")->as_int(), -100);
    EXPECT_EQ(file->find("t.u16")->as_uint(), 60000U);
    EXPECT_EQ(file->find("t.i16")->as_int(), -30000);
    EXPECT_EQ(file->find("t.u32")->as_uint(), 4000000000U);
    EXPECT_EQ(file->find("t.i32")->as_int(), -2000000000);
    EXPECT_EQ(file->find("t.u64")->as_uint(), (std::uint64_t{1} << 63) + 5);
    EXPECT_EQ(file->find("t.i64")->as_int(), -(std::int64_t{1} << 62));
    EXPECT_EQ(file->find("t.f32")->as_float(), static_cast<double>(0.1f));
    EXPECT_EQ(file->find("t.f64")->as_float(), 0.1);
    EXPECT_EQ(file->find("t.yes")->as_bool(), true);
    EXPECT_EQ(file->find("t.no")->as_bool(), false);
    EXPECT_EQ(file->find("t.string")->as_string(), "naïve 東京 \U0001F600");
    EXPECT_EQ(file->find("t.ints")->as_ints(), (std::vector<std::int64_t>{1, -2, 3}));
    EXPECT_EQ(file->find("t.floats")->as_floats(), (std::vector<float>{0.5f, -0.25f}));
    EXPECT_EQ(file->find("t.bools")->as_bools(), (std::vector<bool>{true, false, true}));
    EXPECT_EQ(file->find("t.strings")->as_strings(),
              (std::vector<std::string_view>{"", "a", "Ġhello", "東京"}));
    const std::pair<const char*, quant::Type> types[] = {
        {"a.weight", quant::Type::f32},  {"b.weight", quant::Type::f16},
        {"c.weight", quant::Type::bf16}, {"d.weight", quant::Type::q8_0},
        {"e.weight", quant::Type::q4_0}, {"f.table", quant::Type::i64}};
    for (const auto& [name, type] : types) {
        ASSERT_NE(file->find_tensor(name), nullptr) << name;
        EXPECT_EQ(file->find_tensor(name)->type, type) << name;
    }
    EXPECT_EQ(file->find_tensor("b.weight")->shape, (std::vector<std::uint64_t>{4, 3, 2}));
    const Tensor& table = *file->find_tensor("f.table");
    std::int64_t last = 0;
    std::memcpy(&last, table.data.data() + 24, 8);
    EXPECT_EQ(last, -(std::int64_t{1} << 62));
    EXPECT_EQ(floats(*file->find_tensor("a.weight"))[2], -0x1.18b798p-2f);
    EXPECT_EQ(floats(*file->find_tensor("b.weight"))[1], -1.34375f);
}

TEST(GgufReader, another_alignment_holds_the_same_tensors) {
    const auto plain = File::open(kData + "/package.gguf");
    const auto aligned = File::open(kData + "/aligned.gguf");
    ASSERT_TRUE(plain.ok() && aligned.ok());
    ASSERT_EQ(plain->tensors().size(), aligned->tensors().size());
    for (const Tensor& tensor : plain->tensors()) {
        const Tensor* other = aligned->find_tensor(tensor.name);
        ASSERT_NE(other, nullptr) << tensor.name;
        EXPECT_TRUE(std::ranges::equal(tensor.data, other->data)) << tensor.name;
        EXPECT_EQ(other->offset % 128, 0U);
    }
}

TEST(GgufReader, what_is_no_gguf_v3_is_refused) {
    EXPECT_NE(error_of("").find("not a GGUF file"), std::string::npos);
    EXPECT_NE(error_of("GGU").find("not a GGUF file"), std::string::npos);
    EXPECT_NE(error_of(std::string(1000, 'x')).find("not a GGUF file"), std::string::npos);
    RawGguf file = tiny_gguf();
    file.version = 2;
    expect_error(file, {"version 2", "wanted version 3"});
    file.version = 0x03000000;
    expect_error(file, {"big-endian"});
    EXPECT_FALSE(File::open("/nonexistent/m.gguf").ok());
}

TEST(GgufReader, counts_that_the_file_cannot_hold_are_refused_before_memory_is_asked_for) {
    for (const std::size_t at : {8, 16}) {  // the counts of tensors and of keys
        for (const std::uint64_t count : {std::uint64_t{1000}, std::uint64_t{1} << 32,
                                          std::uint64_t{1} << 61, ~std::uint64_t{0}}) {
            std::string bytes = tiny_gguf().bytes();
            bytes.replace(at, 8, raw(count));
            EXPECT_NE(error_of(bytes).find(std::to_string(count)), std::string::npos);
        }
    }
}

// GGUF-07
TEST(GgufReader, dimensions_that_wrap_or_pass_the_file_are_refused) {
    for (const std::size_t tensor : {0, 1}) {
        for (const std::size_t dimension : {0, 1}) {
            for (const std::uint64_t size :
                 {std::uint64_t{0}, std::uint64_t{1} << 31, (std::uint64_t{1} << 42) + 1,
                  std::uint64_t{1} << 59, std::uint64_t{1} << 62, std::uint64_t{1} << 63,
                  ~std::uint64_t{0}, ~std::uint64_t{0} / 34 * 32 + 32}) {
                RawGguf file = tiny_gguf();
                file.tensors[tensor].shape[dimension] = size;
                expect_error(file, {file.tensors[tensor].name});
            }
        }
    }
    RawGguf file = tiny_gguf();
    file.tensors[0].shape = {1, 1};  // smaller than the data that is there
    EXPECT_EQ(error_of(file.bytes()), "");
    file.tensors[1].shape = {1, 1};  // no whole block
    expect_error(file, {"y.weight", "Q8_0", "32"});
    file = tiny_gguf();
    file.tensors[0].shape = {1 << 16, 1 << 16, 1 << 16, 1 << 16};  // the product is 2^64
    expect_error(file, {"x.weight", "65536"});
}

TEST(GgufReader, the_number_of_dimensions_is_one_to_four) {
    RawGguf file = tiny_gguf();
    file.tensors[0].shape = {};
    expect_error(file, {"x.weight", "0 dimensions"});
    file.tensors[0].shape = {4, 1, 1, 1, 1};
    expect_error(file, {"x.weight", "5 dimensions"});
    file.tensors[0].shape = {4, 1, 1, 2};
    EXPECT_EQ(error_of(file.bytes()), "");
}

TEST(GgufReader, tensor_data_lies_inside_the_file_and_aligned) {
    RawGguf file = tiny_gguf();
    file.tensors[1].offset = 33;
    expect_error(file, {"y.weight", "33", "32"});
    for (const std::uint64_t offset :
         {std::uint64_t{64}, std::uint64_t{1} << 40, ~std::uint64_t{0} / 32 * 32}) {
        file = tiny_gguf();
        std::string bytes = file.bytes();
        const std::string before = raw(std::uint32_t{8}) + raw(std::uint64_t{32});
        const std::size_t at = bytes.rfind(before);
        ASSERT_NE(at, std::string::npos);
        bytes.replace(at + 4, 8, raw(offset));
        EXPECT_NE(error_of(bytes).find("y.weight"), std::string::npos) << offset;
    }
}

TEST(GgufReader, tensors_that_overlap_are_refused) {
    RawGguf file = tiny_gguf();
    file.tensors[1].offset = 0;
    expect_error(file, {"x.weight", "32 bytes", "y.weight", "after 0"});
    file.tensors[1].offset = 32;
    file.tensors[0].shape[1] = 3;
    expect_error(file, {"x.weight", "48 bytes", "y.weight", "after 32"});
}

// 34 bytes for 128 values instead of 36, under the same type number.
TEST(GgufReader, q2_0_of_groups_of_128_is_refused_by_its_size) {
    for (const bool last : {false, true}) {
        RawGguf file = tiny_gguf();
        test::RawTensor& tensor = file.tensors[last ? 1 : 0];
        tensor.type = 42;
        tensor.shape = {2560, 4};
        tensor.data = std::string(10240 / 128 * 34, 'x');
        file.tensors[1].offset = last ? 32 : 2720;
        expect_error(file, {tensor.name, "Q2_0", "groups of 128", "groups of 64"});
        tensor.data = std::string(10240 / 64 * 18, 'x');
        file.tensors[1].offset = last ? 32 : 2880;
        EXPECT_EQ(error_of(file.bytes()), "");
    }
}

TEST(GgufReader, a_type_that_cannot_be_read_is_named_with_those_that_can) {
    RawGguf file = tiny_gguf();
    file.tensors[0].type = 34;
    expect_error(file, {"x.weight", "TQ1_0", "Q8_0"});
    file.tensors[0].type = 1000;
    expect_error(file, {"x.weight", "1000", "unknown"});
}

TEST(GgufReader, names_are_unique_and_of_sensible_length) {
    RawGguf file = tiny_gguf();
    file.tensors[1].name = "x.weight";
    expect_error(file, {"x.weight", "twice"});
    file = tiny_gguf();
    file.pairs[3].key = "tiny.scale";
    expect_error(file, {"tiny.scale", "twice"});
    file = tiny_gguf();
    file.tensors[0].name = "";
    expect_error(file, {"tensor name", "0 bytes"});
    file.tensors[0].name = std::string(257, 'n');
    expect_error(file, {"tensor name", "257"});
    file.tensors[0].name = std::string(256, 'n');
    EXPECT_EQ(error_of(file.bytes()), "");
    file.pairs[1].key = std::string(65536, 'k');
    expect_error(file, {"metadata key", "65536"});
    file.pairs[1].key = "";
    expect_error(file, {"metadata key", "0 bytes"});
}

TEST(GgufReader, a_hostile_name_does_not_break_the_message) {
    RawGguf file = tiny_gguf();
    file.tensors[0].name = "x\n\x1b[31m";
    file.tensors[0].type = 34;
    const std::string message = error_of(file.bytes());
    EXPECT_EQ(message.find_first_of("\n\x1b"), std::string::npos);
    EXPECT_NE(message.find("x\\x0a\\x1b[31m"), std::string::npos) << message;
}

TEST(GgufReader, metadata_of_unknown_or_nested_types_is_refused) {
    RawGguf file = tiny_gguf();
    file.pairs[1].type = 13;
    expect_error(file, {"tiny.block_count", "13"});
    file = tiny_gguf();
    file.pairs[4].payload = raw(std::uint32_t{9}) + raw(std::uint64_t{1}) + raw(std::uint32_t{0}) +
                            raw(std::uint64_t{0});
    expect_error(file, {"tiny.sections", "type 9"});
    file.pairs[4].payload = raw(std::uint32_t{77}) + raw(std::uint64_t{0});
    expect_error(file, {"tiny.sections", "77"});
    file = tiny_gguf();
    file.pairs[3].payload = raw(std::uint8_t{2});
    expect_error(file, {"tiny.flag", "bool"});
    file.pairs[3].type = 9;
    file.pairs[3].payload = raw(std::uint32_t{7}) + raw(std::uint64_t{2}) + "\1\3";
    expect_error(file, {"tiny.flag", "bool"});
}

TEST(GgufReader, arrays_and_strings_longer_than_the_file_are_refused) {
    for (const std::uint64_t count : {std::uint64_t{100'000}, std::uint64_t{1} << 61,
                                      std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
        RawGguf file = tiny_gguf();
        for (const std::uint32_t element : {0U, 5U, 8U, 10U}) {
            file.pairs[4].payload = raw(element) + raw(count);
            expect_error(file, {"truncated or corrupt"});
        }
        file = tiny_gguf();
        file.pairs[0].payload = raw(count) + "tiny";
        expect_error(file, {"general.architecture", "truncated or corrupt"});
        file = tiny_gguf();
        file.pairs[5].payload = raw(std::uint32_t{8}) + raw(std::uint64_t{1}) + raw(count) + "a";
        expect_error(file, {"tiny.words", "truncated or corrupt"});
    }
}

// GGUF-10
TEST(GgufReader, the_alignment_may_be_of_any_integer_type) {
    const std::pair<std::uint32_t, std::string> encodings[] = {
        {0, raw(std::uint8_t{64})},   {1, raw(std::int8_t{64})},   {2, raw(std::uint16_t{64})},
        {3, raw(std::int16_t{64})},   {4, raw(std::uint32_t{64})}, {5, raw(std::int32_t{64})},
        {10, raw(std::uint64_t{64})}, {11, raw(std::int64_t{64})}};
    for (const auto& [type, payload] : encodings) {
        RawGguf file = tiny_gguf();
        file.alignment = 64;
        file.pairs.push_back({"general.alignment", type, payload});
        file.tensors[1].offset = 64;
        EXPECT_EQ(error_of(file.bytes()), "") << type;
    }
}

TEST(GgufReader, an_alignment_that_is_no_power_of_two_is_refused) {
    RawGguf file = tiny_gguf();
    file.pairs.push_back({"general.alignment", 8, raw_text("32")});
    expect_error(file, {"general.alignment", "string"});
    for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-32}, std::int64_t{48},
                                     std::int64_t{1} << 31, std::int64_t{1} << 62}) {
        file.pairs.back() = {"general.alignment", 11, raw(value)};
        expect_error(file, {"general.alignment", std::to_string(value)});
    }
    file.pairs.back() = {"general.alignment", 10, raw(~std::uint64_t{0})};
    expect_error(file, {"general.alignment"});
}

TEST(GgufReader, metadata_alone_is_a_file) {
    RawGguf file = tiny_gguf();
    file.tensors.clear();
    EXPECT_EQ(error_of(file.bytes()), "");
    file.pairs.clear();
    EXPECT_EQ(error_of(file.bytes().substr(0, 24)), "");
}

}  // namespace
}  // namespace strata::gguf
