#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cli/expect.h"
#include "tests/cli/models.h"
#include "tests/cli/run_binary.h"

namespace strata::test {
namespace {

using Json = nlohmann::ordered_json;

TEST(Inspect, the_report_says_what_is_in_the_file) {
    const Ran plain = run_strata({"inspect", tiny().path()});
    expect_done(plain);
    EXPECT_NE(plain.out.find("qwen4exp"), std::string::npos);
    EXPECT_EQ(plain.out.find("blk.0."), std::string::npos);
    const Ran listed = run_strata({"inspect", tiny().path(), "--tensors"});
    expect_done(listed);
    EXPECT_NE(listed.out.find("blk.0."), std::string::npos);
    EXPECT_TRUE(listed.out.ends_with("\n"));
}

TEST(Inspect, json_is_one_object_with_every_tensor_when_asked) {
    const Json plain = json_of(run_strata({"inspect", tiny().path(), "--json"}));
    EXPECT_TRUE(plain.is_object());
    const Json listed = json_of(run_strata({"inspect", tiny().path(), "--json", "--tensors"}));
    ASSERT_TRUE(listed["tensors"].is_array());
    EXPECT_GT(listed["tensors"].size(), 100U);
}

TEST(Inspect, no_name_from_outside_reaches_the_terminal_as_a_command) {
    const TempDir directory;
    const std::string path = directory / "a\x1b[31m\u202e\x9b.gguf";
    std::filesystem::copy_file(tiny().path(), path);
    const Ran ran = run_strata({"inspect", path});
    expect_done(ran);
    EXPECT_NE(ran.out.find("a\\x1b[31m\\xe2\\x80\\xae\\x9b.gguf: qwen4exp"), std::string::npos)
        << ran.out.substr(0, 200);
}

}  // namespace
}  // namespace strata::test
