// Reading keys of any type as any other.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "gguf/reader.h"
#include "tests/gguf/raw.h"
#include "tests/support/temp_dir.h"

namespace strata::gguf {
namespace {

using test::raw;
using test::raw_strings;
using test::raw_text;
using test::RawGguf;

// One payload of every type, and arrays of every type, by the name that messages give them.
std::map<std::string, std::pair<std::uint32_t, std::string>> every_type() {
    const std::vector<std::pair<std::string, std::string>> scalars = {
        {"u8", raw(std::uint8_t{1})},
        {"i8", raw(std::int8_t{1})},
        {"u16", raw(std::uint16_t{1})},
        {"i16", raw(std::int16_t{1})},
        {"u32", raw(std::uint32_t{1})},
        {"i32", raw(std::int32_t{1})},
        {"f32", raw(1.0f)},
        {"bool", raw(std::uint8_t{1})},
        {"string", raw_text("1")},
        {"", ""},
        {"u64", raw(std::uint64_t{1})},
        {"i64", raw(std::int64_t{1})},
        {"f64", raw(1.0)}};
    std::map<std::string, std::pair<std::uint32_t, std::string>> all;
    for (std::uint32_t type = 0; type < scalars.size(); ++type) {
        const auto& [name, payload] = scalars[type];
        if (name.empty()) continue;
        all[name] = {type, payload};
        all["array of " + name] = {9,
                                   raw(type) + raw(std::uint64_t{3}) + payload + payload + payload};
    }
    return all;
}

bool is_integer(const std::string& name) {
    return name.size() <= 3 && (name[0] == 'u' || name[0] == 'i');
}

bool is_number(const std::string& name) { return is_integer(name) || name[0] == 'f'; }

std::string element(const std::string& name) {
    return name.starts_with("array of ") ? name.substr(9) : "none";
}

// GGUF-09: `read` succeeds on the types that `allowed` names and on no other, and never crashes.
template <typename Read>
void check_reads(Read read, const std::function<bool(const std::string&)>& allowed) {
    for (const auto& [name, encoding] : every_type()) {
        const test::TempDir dir;
        RawGguf raw_file = test::tiny_gguf();
        raw_file.pairs[1] = {"tiny.key", encoding.first, encoding.second};
        test::write_file(dir / "m.gguf", raw_file.bytes());
        const auto file = File::open(dir / "m.gguf");
        ASSERT_TRUE(file.ok()) << name << ": " << file.error().message;
        const auto found = read(*file, "tiny.key");
        EXPECT_EQ(found.ok(), allowed(name)) << name;
        if (found.ok()) continue;
        for (const std::string& word :
             {dir / "m.gguf", std::string("'tiny.key'"), std::string("wanted")}) {
            EXPECT_NE(found.error().message.find(word), std::string::npos) << found.error().message;
        }
        if (!is_integer(name)) {
            EXPECT_NE(found.error().message.find(name), std::string::npos) << found.error().message;
        }
        const auto missing = read(*file, "tiny.none");
        ASSERT_FALSE(missing.ok());
        EXPECT_NE(missing.error().message.find("'tiny.none' is missing"), std::string::npos);
    }
}

TEST(GgufRequire, a_key_of_another_type_is_an_error_with_both_types) {
    check_reads(require_uint, is_integer);
    check_reads(require_int, is_integer);
    check_reads(require_float, is_number);
    check_reads(require_bool, [](const std::string& name) { return name == "bool"; });
    check_reads(require_string, [](const std::string& name) { return name == "string"; });
    const auto integers = [](const std::string& name) { return is_integer(element(name)); };
    check_reads(require_uints, integers);
    check_reads(require_ints, integers);
    check_reads(require_floats, [](const std::string& name) { return is_number(element(name)); });
    check_reads(require_strings, [](const std::string& name) { return element(name) == "string"; });
}

TEST(GgufRequire, a_negative_number_is_no_size) {
    const test::TempDir dir;
    RawGguf raw_file = test::tiny_gguf();
    raw_file.pairs[1] = {"tiny.key", 5, raw(std::int32_t{-7})};
    test::write_file(dir / "m.gguf", raw_file.bytes());
    const auto file = File::open(dir / "m.gguf");
    ASSERT_TRUE(file.ok());
    const auto found = require_uint(*file, "tiny.key");
    ASSERT_FALSE(found.ok());
    EXPECT_NE(found.error().message.find("is -7"), std::string::npos) << found.error().message;
    EXPECT_EQ(require_int(*file, "tiny.key").value(), -7);
}

TEST(GgufRequire, an_optional_key_may_be_missing_but_not_of_another_type) {
    const test::TempDir dir;
    test::write_file(dir / "m.gguf", test::tiny_gguf().bytes());
    const auto file = File::open(dir / "m.gguf");
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(uint_or(*file, "tiny.none", 7).value(), 7U);
    EXPECT_EQ(uint_or(*file, "tiny.block_count", 7).value(), 2U);
    EXPECT_FALSE(uint_or(*file, "tiny.scale", 7).ok());
    EXPECT_EQ(float_or(*file, "tiny.none", 0.25).value(), 0.25);
    EXPECT_EQ(float_or(*file, "tiny.scale", 0.25).value(), 0.5);
    EXPECT_FALSE(float_or(*file, "tiny.words", 0.25).ok());
    EXPECT_EQ(bool_or(*file, "tiny.none", true).value(), true);
    EXPECT_EQ(bool_or(*file, "tiny.flag", false).value(), true);
    EXPECT_FALSE(bool_or(*file, "tiny.block_count", false).ok());
}

// GGUF-03
TEST(GgufRequire, a_missing_tensor_is_named) {
    const test::TempDir dir;
    test::write_file(dir / "m.gguf", test::tiny_gguf().bytes());
    const auto file = File::open(dir / "m.gguf");
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(require_tensor(*file, "x.weight").value()->name, "x.weight");
    const auto missing = require_tensor(*file, "z.weight");
    ASSERT_FALSE(missing.ok());
    EXPECT_NE(missing.error().message.find("'z.weight' is missing"), std::string::npos);
}

}  // namespace
}  // namespace strata::gguf
