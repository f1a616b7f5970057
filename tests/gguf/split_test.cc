// Split sets: found from any part, through directories and links, and told apart from strangers.
#include "gguf/split.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/text.h"
#include "gguf/reader.h"
#include "tests/gguf/raw.h"
#include "tests/support/temp_dir.h"

namespace strata::gguf {
namespace {

namespace fs = std::filesystem;
using test::raw;
using test::raw_text;
using test::RawGguf;
using test::TempDir;
using test::write_file;

const std::string kSets = STRATA_TEST_DATA;

std::string part_name(int number, int count = 3, const std::string& prefix = "m") {
    const std::string digits = "0000";
    return prefix + "-" + digits + std::to_string(number) + "-of-" + digits +
           std::to_string(count) + ".gguf";
}

// Part `number` (from 1) of a set of three with one tensor each, named <tensor><number>.
RawGguf part(int number, const std::string& tensor = "t", int count = 3) {
    RawGguf file;
    file.pairs = {{"split.no", 2, raw(static_cast<std::uint16_t>(number - 1))},
                  {"split.count", 2, raw(static_cast<std::uint16_t>(count))},
                  {"split.tensors.count", 5, raw(std::int32_t{count})}};
    if (number == 1) file.pairs.push_back({"general.architecture", 8, raw_text("tiny")});
    file.tensors = {{tensor + std::to_string(number), {1}, 0, 0, raw(static_cast<float>(number))}};
    return file;
}

void write_set(const std::string& directory, const std::string& prefix = "m") {
    fs::create_directories(directory);
    for (int number = 1; number <= 3; ++number) {
        write_file((fs::path(directory) / part_name(number, 3, prefix)).string(),
                   part(number).bytes());
    }
}

void expect_whole(const std::string& path) {
    const auto file = File::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_EQ(file->tensors().size(), 3U) << path;
    EXPECT_EQ(file->paths().size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
        const Tensor& tensor = file->tensors()[i];
        EXPECT_EQ(tensor.name, concat("t", i + 1));
        EXPECT_EQ(tensor.shard, i);
        EXPECT_EQ(file->find_tensor(tensor.name), &tensor);
        float value = 0;
        quant::info(tensor.type).decode(tensor.data.data(), &value, 1);
        EXPECT_EQ(value, static_cast<float>(i + 1));
    }
    EXPECT_EQ(require_string(*file, "general.architecture").value(), "tiny");
}

void expect_error(const std::string& path, const std::vector<std::string>& words) {
    const auto file = File::open(path);
    ASSERT_FALSE(file.ok()) << path;
    for (const std::string& word : words) {
        EXPECT_NE(file.error().message.find(word), std::string::npos)
            << word << " is not in: " << file.error().message;
    }
}

// GGUF-01, GGUF-04
TEST(GgufSplit, any_part_and_the_directory_open_the_whole_set) {
    const TempDir dir;
    write_set(dir.path());
    for (int number = 1; number <= 3; ++number) expect_whole(dir / part_name(number));
    expect_whole(dir.path());
    expect_whole(dir.path() + "/");
}

TEST(GgufSplit, a_set_that_the_public_package_wrote_is_the_whole_file) {
    const auto whole = File::open(kSets + "/package.gguf");
    ASSERT_TRUE(whole.ok());
    for (int number = 1; number <= 3; ++number) {
        const auto split = File::open(kSets + "/" + part_name(number, 3, "split"));
        ASSERT_TRUE(split.ok()) << split.error().message;
        ASSERT_EQ(split->tensors().size(), whole->tensors().size());
        for (std::size_t i = 0; i < whole->tensors().size(); ++i) {
            EXPECT_EQ(split->tensors()[i].name, whole->tensors()[i].name);
            EXPECT_TRUE(std::ranges::equal(split->tensors()[i].data, whole->tensors()[i].data));
        }
        EXPECT_EQ(require_string(*split, "t.string").value(), "of the first part");
    }
}

TEST(GgufSplit, a_missing_part_is_named) {
    for (int gone = 1; gone <= 3; ++gone) {
        const TempDir dir;
        write_set(dir.path());
        fs::remove(dir / part_name(gone));
        for (int number = 1; number <= 3; ++number) {
            if (number != gone) expect_error(dir / part_name(number), {dir / part_name(gone)});
        }
        expect_error(dir.path(), {part_name(gone)});
    }
}

TEST(GgufSplit, a_part_of_another_set_is_refused) {
    const TempDir dir;
    write_set(dir.path());
    const std::string second = dir / part_name(2);
    write_file(second, part(1).bytes());  // the same model's other part
    expect_error(dir / part_name(1), {second, "part 1"});
    write_file(second, test::tiny_gguf().bytes());  // a whole model
    expect_error(dir / part_name(1), {second});
    RawGguf foreign = part(2);
    foreign.pairs[2].payload = raw(std::int32_t{9});
    write_file(second, foreign.bytes());
    expect_error(dir / part_name(1), {second, "9 tensors"});
    foreign = part(2);
    foreign.pairs.push_back({"general.architecture", 8, raw_text("other")});
    write_file(second, foreign.bytes());
    expect_error(dir / part_name(1), {second, "other", "tiny"});
    foreign = part(2);
    foreign.tensors[0].name = "t1";
    write_file(second, foreign.bytes());
    expect_error(dir / part_name(1), {second, "t1"});
    foreign = part(2);
    foreign.tensors.clear();
    write_file(second, foreign.bytes());
    expect_error(dir / part_name(1), {"2 tensors", "3"});
    write_file(second, part(2).bytes().substr(0, 60));
    expect_error(dir / part_name(1), {second, "truncated"});
}

TEST(GgufSplit, a_part_that_is_not_named_like_one_cannot_find_the_others) {
    const TempDir dir;
    write_set(dir.path());
    fs::rename(dir / part_name(2), dir / "two.gguf");
    expect_error(dir / "two.gguf", {"two.gguf", "3 parts"});
    fs::rename(dir / "two.gguf", dir / part_name(2, 4));
    expect_error(dir / part_name(2, 4), {"2 of 4", "2 of 3"});
}

TEST(GgufSplit, split_counts_that_make_no_sense_are_refused) {
    const TempDir dir;
    RawGguf file = part(1);
    file.pairs[0].payload = raw(std::uint16_t{3});
    write_file(dir / part_name(1), file.bytes());
    expect_error(dir / part_name(1), {part_name(1)});
    file = part(1);
    file.pairs[1] = {"split.count", 10, raw(~std::uint64_t{0})};
    write_file(dir / part_name(1), file.bytes());
    expect_error(dir / part_name(1), {part_name(1)});
    file.pairs[1] = {"split.count", 8, raw_text("3")};
    write_file(dir / part_name(1), file.bytes());
    expect_error(dir / part_name(1), {"split.count", "string"});
    file.pairs[1] = {"split.count", 5, raw(std::int32_t{-3})};
    write_file(dir / part_name(1), file.bytes());
    expect_error(dir / part_name(1), {"split.count", "negative"});
}

// GGUF-06
TEST(GgufSplit, the_other_parts_lie_beside_the_path_as_given) {
    const TempDir dir;
    write_set(dir / "with space/東京", "mödel");
    write_set(dir / "plain");
    expect_whole(dir / ("with space/東京/" + part_name(2, 3, "mödel")));
    expect_whole(dir / "with space/東京");
    expect_whole(dir / ("plain/../with space/./東京/" + part_name(3, 3, "mödel")));
    const fs::path before = fs::current_path();
    fs::current_path(dir / "with space");
    expect_whole("東京/" + part_name(1, 3, "mödel"));
    expect_whole("./東京/" + part_name(2, 3, "mödel"));
    expect_whole("../plain/" + part_name(2));
    fs::current_path(dir / "plain");
    expect_whole(part_name(2));
    expect_whole(".");
    fs::current_path(before);
}

TEST(GgufSplit, links_into_a_store_of_hashed_names_are_followed) {
    const TempDir dir;
    fs::create_directories(dir / "blobs");
    fs::create_directories(dir / "snapshots/main");
    for (int number = 1; number <= 3; ++number) {
        const std::string blob = "hash" + std::to_string(number * 7919);
        write_file(dir / ("blobs/" + blob), part(number).bytes());
        fs::create_symlink("../../blobs/" + blob, dir / ("snapshots/main/" + part_name(number)));
    }
    for (int number = 1; number <= 3; ++number) {
        expect_whole(dir / ("snapshots/main/" + part_name(number)));
    }
    expect_whole(dir / "snapshots/main");
}

TEST(GgufSplit, a_lone_link_finds_the_other_parts_beside_its_target) {
    const TempDir dir;
    write_set(dir / "store");
    fs::create_symlink("store/" + part_name(2), dir / part_name(2));
    expect_whole(dir / part_name(2));
    fs::create_symlink("store/" + part_name(3), dir / "current.gguf");
    expect_whole(dir / "current.gguf");
}

TEST(GgufSplit, a_directory_holds_one_model) {
    const TempDir dir;
    expect_error(dir.path(), {dir.path(), "no file named *.gguf"});
    write_file(dir / "notes.txt", "");
    write_file(dir / "one.gguf", test::tiny_gguf().bytes());
    const auto file = File::open(dir.path());
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->tensors().size(), 2U);
    write_set(dir.path());
    expect_error(dir.path(), {"2 models", "one.gguf", part_name(1)});
}

TEST(GgufSplit, only_the_names_of_parts_are_names_of_parts) {
    const auto name = parse_split_name("dir/m-00002-of-00003.gguf");
    ASSERT_TRUE(name.has_value());
    EXPECT_EQ(name->prefix, "dir/m");
    EXPECT_EQ(name->number, 2U);
    EXPECT_EQ(name->count, 3U);
    EXPECT_EQ(part_path(*name, 1), "dir/m-00001-of-00003.gguf");
    EXPECT_EQ(part_path({"m", 1, 99999}, 12345), "m-12345-of-99999.gguf");
    for (const char* other :
         {"m.gguf", "m-00002-of-00003.bin", "m-00000-of-00003.gguf", "m-00004-of-00003.gguf",
          "m-2-of-3.gguf", "m-0000a-of-00003.gguf", "m-+0002-of-00003.gguf", "m00002-of-00003.gguf",
          "-of-.gguf", ".gguf", ""}) {
        EXPECT_FALSE(parse_split_name(other).has_value()) << other;
    }
}

}  // namespace
}  // namespace strata::gguf
