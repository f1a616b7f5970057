#include "safetensors/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "safetensors/json.h"
#include "tests/safetensors/raw.h"
#include "tests/support/temp_dir.h"

namespace strata::safetensors {
namespace {

using test::raw_safetensors;
using test::TempDir;
using test::tiny_safetensors;
using test::write_file;

void expect_error(const std::string& directory, const std::vector<std::string>& words) {
    const auto checkpoint = Checkpoint::open(directory);
    ASSERT_FALSE(checkpoint.ok()) << "accepted; wanted an error with '" << words[0] << "'";
    for (const std::string& word : words) {
        EXPECT_NE(checkpoint.error().message.find(word), std::string::npos)
            << word << " is not in: " << checkpoint.error().message;
    }
}

// An error for a checkpoint of one file with this header and 47 bytes of data.
void expect_header_error(const std::string& header, const std::vector<std::string>& words) {
    const TempDir dir;
    write_file(dir / "model.safetensors", raw_safetensors(header, std::string(47, '\0')));
    expect_error(dir.path(), words);
    expect_error(dir.path(), {dir / "model.safetensors"});
}

std::string one_tensor(const std::string& fields) { return "{\"t\":{" + fields + "}}"; }

TEST(Safetensors, reads_every_tensor_of_one_file) {
    const TempDir dir;
    write_file(dir / "model.safetensors", tiny_safetensors());
    auto opened = Checkpoint::open(dir.path());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const Checkpoint checkpoint = std::move(opened).value();
    EXPECT_EQ(checkpoint.directory(), dir.path());
    EXPECT_EQ(checkpoint.tensors().size(), 6U);
    const Tensor* a = checkpoint.find("a");
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a->shape, (std::vector<std::uint64_t>{2, 3}));
    std::vector<float> row(3);
    ASSERT_TRUE(read_floats(*a, 3, row).ok());
    EXPECT_EQ(row, (std::vector<float>{3, 4, 5}));
    std::vector<float> pair(2);
    ASSERT_TRUE(read_floats(*checkpoint.find("b"), 0, pair).ok());
    EXPECT_EQ(pair, (std::vector<float>{1, -2}));
    EXPECT_EQ(checkpoint.find("c")->elements(), 1U);
    std::vector<float> one(1);
    ASSERT_TRUE(read_floats(*checkpoint.find("c"), 0, one).ok());
    EXPECT_EQ(one, std::vector<float>{1});
    EXPECT_EQ(read_ints(*checkpoint.find("d")).value(),
              (std::vector<std::int64_t>{-5, std::int64_t{1} << 40}));
    EXPECT_EQ(checkpoint.find("none")->elements(), 0U);
    EXPECT_EQ(checkpoint.find("__metadata__"), nullptr);
    EXPECT_EQ(checkpoint.find("f"), nullptr);
}

TEST(Safetensors, a_format_that_is_not_read_is_an_error_only_when_it_is_used) {
    const TempDir dir;
    write_file(dir / "model.safetensors", tiny_safetensors());
    const auto checkpoint = Checkpoint::open(dir.path());
    ASSERT_TRUE(checkpoint.ok());
    const Tensor& tensor = *checkpoint->find("e");
    EXPECT_EQ(tensor.dtype, Dtype::other);
    EXPECT_EQ(tensor.data.size(), 1U);
    std::vector<float> one(1);
    const Status status = read_floats(tensor, 0, one);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("'F8_E4M3'"), std::string::npos);
    EXPECT_FALSE(read_ints(*checkpoint->find("a")).ok());
    EXPECT_FALSE(read_floats(*checkpoint->find("d"), 0, one).ok());
}

TEST(Safetensors, a_range_outside_the_tensor_is_an_error) {
    const TempDir dir;
    write_file(dir / "model.safetensors", tiny_safetensors());
    const auto checkpoint = Checkpoint::open(dir.path());
    ASSERT_TRUE(checkpoint.ok());
    std::vector<float> row(3);
    EXPECT_FALSE(read_floats(*checkpoint->find("a"), 4, row).ok());
    EXPECT_FALSE(read_floats(*checkpoint->find("a"), ~std::uint64_t{0}, row).ok());
    EXPECT_TRUE(read_floats(*checkpoint->find("a"), 6, {}).ok());
}

TEST(Safetensors, shards_are_joined_as_the_index_says) {
    const TempDir dir;
    write_file(dir / "x-1.safetensors", tiny_safetensors());
    write_file(dir / "x-2.safetensors",
               raw_safetensors(R"({"z":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                               test::raw_values<float>({7})));
    write_file(dir / "stray.safetensors", "not part of it");
    write_file(dir / "model.safetensors.index.json",
               R"({"weight_map":{"a":"x-1.safetensors","z":"x-2.safetensors"}})");
    const auto checkpoint = Checkpoint::open(dir.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->paths().size(), 2U);
    EXPECT_EQ(checkpoint->tensors().size(), 7U);
    std::vector<float> one(1);
    ASSERT_TRUE(read_floats(*checkpoint->find("z"), 0, one).ok());
    EXPECT_EQ(one, std::vector<float>{7});
    EXPECT_EQ(checkpoint->paths()[checkpoint->find("z")->shard], dir / "x-2.safetensors");
}

TEST(Safetensors, an_index_that_does_not_match_its_shards_is_an_error) {
    const TempDir dir;
    const std::string index = dir / "model.safetensors.index.json";
    write_file(dir / "x.safetensors", tiny_safetensors());
    write_file(dir / "y.safetensors", tiny_safetensors());
    write_file(index, R"({"weight_map":{"a":"x.safetensors","z":"gone.safetensors"}})");
    expect_error(dir.path(), {dir / "gone.safetensors", "'z'", "missing"});
    write_file(index, R"({"weight_map":{"a":"x.safetensors","z":"x.safetensors"}})");
    expect_error(dir.path(), {"'z'", dir / "x.safetensors"});
    write_file(index, R"({"weight_map":{"a":"x.safetensors","b":"y.safetensors"}})");
    expect_error(dir.path(), {"'a'", "already in"});
    write_file(index, R"({"weight_map":[]})");
    expect_error(dir.path(), {"weight_map", index});
    write_file(index, "[]");
    expect_error(dir.path(), {"weight_map", index});
    write_file(index, R"({"weight_map":{"a":7}})");
    expect_error(dir.path(), {"'a'", "no string"});
    write_file(index, R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})");
    expect_error(dir.path(), {"'a' twice"});
}

TEST(Safetensors, shards_outside_the_directory_are_refused) {
    const TempDir dir;
    std::filesystem::create_directories(dir / "model/sub");
    write_file(dir / "x.safetensors", tiny_safetensors());
    write_file(dir / "model/sub/x.safetensors", tiny_safetensors());
    for (const std::string& shard :
         {std::string("../x.safetensors"), dir / "x.safetensors", std::string("sub/x.safetensors"),
          std::string(".."), std::string("")}) {
        write_file(dir / "model/model.safetensors.index.json",
                   "{\"weight_map\":{\"a\":\"" + shard + "\"}}");
        expect_error(dir / "model", {"same directory", "'a'"});
    }
}

TEST(Safetensors, a_directory_without_a_checkpoint_says_what_it_looked_for) {
    const TempDir dir;
    expect_error(dir.path(), {dir.path(), "model.safetensors", "model.safetensors.index.json"});
    expect_error(dir / "missing", {dir / "missing", "not a directory"});
    write_file(dir / "file", "");
    expect_error(dir / "file", {"not a directory"});
}

TEST(Safetensors, a_header_length_beyond_the_file_or_the_limit_is_refused) {
    const TempDir dir;
    for (const std::uint64_t length :
         {std::uint64_t{40}, kHeaderBytesMax + 1, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
        std::string bytes = raw_safetensors("{}", "0123456789");
        bytes.replace(0, 8, reinterpret_cast<const char*>(&length), 8);
        write_file(dir / "model.safetensors", bytes);
        expect_error(dir.path(), {std::to_string(length), dir / "model.safetensors"});
    }
    write_file(dir / "model.safetensors", "short");
    expect_error(dir.path(), {"5 bytes"});
}

TEST(Safetensors, data_that_no_tensor_or_two_tensors_have_is_refused) {
    const TempDir dir;
    const auto refused = [&](const std::string& bytes, const std::string& part) {
        write_file(dir / "model.safetensors", bytes);
        expect_error(dir.path(), {part});
    };
    refused(tiny_safetensors() + "x", "its tensors end at 47");
    const auto two = [](const char* offsets, std::size_t bytes) {
        return raw_safetensors(
            std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                        R"("b":{"dtype":"U8","shape":[4],"data_offsets":)") +
                offsets + "}}",
            std::string(bytes, 'x'));
    };
    refused(two("[5,9]", 9), "begins at byte 5 of the data, wanted 4");
    refused(two("[3,7]", 7), "begins at byte 3 of the data, wanted 4");
    // A header that claims the first byte of the data: blanks may follow JSON.
    std::string longer = two("[4,8]", 8);
    ++longer[0];
    longer[longer.size() - 8] = ' ';
    refused(longer, "'b'");
    write_file(dir / "model.safetensors", two("[4,8]", 8));
    EXPECT_TRUE(Checkpoint::open(dir.path()).ok());
}

TEST(Safetensors, a_malformed_description_is_named) {
    expect_header_error("", {"malformed"});
    expect_header_error("[]", {"not a JSON object"});
    expect_header_error("{\"t\":", {"malformed"});
    expect_header_error(R"({"t":5})", {"'t'", "dtype"});
    expect_header_error(one_tensor(R"("shape":[],"data_offsets":[0,4])"), {"'t'", "dtype"});
    expect_header_error(one_tensor(R"("dtype":4,"shape":[],"data_offsets":[0,4])"), {"dtype"});
    for (const char* shape : {"4", "[-1]", "[1.5]", "[\"1\"]", "[1,1,1,1,1,1,1,1,1]", "null",
                              "[18446744073709551616]"}) {
        expect_header_error(
            one_tensor(std::string(R"("dtype":"F32","data_offsets":[0,4],"shape":)") + shape),
            {"'t'", "shape"});
    }
    for (const char* offsets : {"4", "[0]", "[0,4,8]", "[-4,0]", "[4,0]", "[0,48]",
                                "[18446744073709551615,18446744073709551615]"}) {
        expect_header_error(
            one_tensor(std::string(R"("dtype":"F32","shape":[1],"data_offsets":)") + offsets),
            {"'t'", "offsets"});
    }
}

TEST(Safetensors, a_shape_that_does_not_match_the_bytes_is_refused) {
    expect_header_error(one_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"),
                        {"'t'", "[2]", "4 bytes"});
    expect_header_error(one_tensor(R"("dtype":"BF16","shape":[1],"data_offsets":[0,4])"), {"'t'"});
    expect_header_error(
        one_tensor(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"), {"'t'"});
    expect_header_error(
        one_tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
        {"'t'", "63 bits"});
    // A format without a known size is held to the file alone.
    expect_header_error(one_tensor(R"("dtype":"F4","shape":[2],"data_offsets":[0,99])"), {"99"});
}

TEST(Safetensors, a_tensor_twice_in_the_header_is_refused) {
    expect_header_error(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                        R"("t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                        {"'t' twice"});
}

TEST(Safetensors, a_header_nested_deeper_than_any_stack_is_refused) {
    constexpr int kDepth = 200'000;
    for (const char* open : {"[", "{\"a\":"}) {
        std::string header;
        for (int i = 0; i < kDepth; ++i) header += open;
        expect_header_error(header, {"deeper"});
        std::string closed(kDepth, '[');
        closed += std::string(kDepth, ']');
        expect_header_error("{\"t\":" + closed + "}", {"deeper"});
    }
}

TEST(Json, depth_is_limited_and_keys_are_unique_in_each_object) {
    const auto nested = [](int depth) {
        return std::string(static_cast<std::size_t>(depth), '[') +
               std::string(static_cast<std::size_t>(depth), ']');
    };
    EXPECT_TRUE(parse_json(nested(kJsonDepthMax), "p").ok());
    EXPECT_FALSE(parse_json(nested(kJsonDepthMax + 1), "p").ok());
    EXPECT_TRUE(parse_json(R"({"a":{"a":1},"b":[{"a":1},{"a":2}]})", "p").ok());
    EXPECT_FALSE(parse_json(R"({"b":[{"a":1,"c":[],"a":2}]})", "p").ok());
    EXPECT_FALSE(parse_json("{} x", "p").ok());
    EXPECT_FALSE(parse_json("{\"a\":\"\xff\"}", "p").ok());
    EXPECT_EQ(parse_json(R"({"a":[1,"x"]})", "p").value().dump(), R"({"a":[1,"x"]})");
}

TEST(Json, a_file_longer_than_its_limit_is_refused) {
    const TempDir dir;
    write_file(dir / "c.json", "[1, 2, 3]");
    EXPECT_TRUE(read_json(dir / "c.json", 9).ok());
    const auto refused = read_json(dir / "c.json", 8);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find(dir / "c.json"), std::string::npos);
}

}  // namespace
}  // namespace strata::safetensors
