// strata bench at sizes that take no time.
#include <gtest/gtest.h>

#include "tests/cli/expect.h"
#include "tests/cli/models.h"

namespace strata::test {
namespace {

using Json = nlohmann::ordered_json;

TEST(BenchCommand, shows_each_figure_beside_its_floor_and_a_checksum) {
    const Json decode =
        json_of(run_strata({"bench", "decode", "-m", tiny().path(), "--small", "--rows", "1,4",
                            "-n", "4", "--depth", "3", "--repeats", "2", "--json"}));
    EXPECT_EQ(decode["bench"], "decode");
    EXPECT_GT(decode["machine"]["read_bytes_per_second"], 0);
    ASSERT_EQ(decode["windows"].size(), 2u);
    EXPECT_EQ(decode["windows"][1]["rows"], 4);
    EXPECT_GT(decode["windows"][1]["floor_ms"], 0);
    EXPECT_GT(decode["windows"][1]["reached"], 0);
    EXPECT_GE(decode["windows"][1]["experts_read"], decode["windows"][0]["experts_read"]);
    EXPECT_EQ(decode["windows"][0]["checksum"], decode["windows"][1]["checksum"]);
    const Ran prompt = run_strata({"bench", "prompt", "-m", tiny().path(), "--small", "-n", "9",
                                   "--repeats", "1", "--one-token"});
    expect_done(prompt);
    for (const char* part : {"floor", "% reached", "checksum", "tokens/s"}) {
        EXPECT_NE(prompt.out.find(part), std::string::npos) << prompt.out;
    }
    const Json draft = json_of(
        run_strata({"bench", "draft", "-m", tiny().path(), "--dflash", draft_of("tiny"), "--small",
                    "--guesses", "2", "-n", "2", "--depth", "5", "--repeats", "2", "--json"}));
    ASSERT_EQ(draft["drafts"].size(), 2u);
    EXPECT_EQ(draft["drafts"][0]["draft"], "dflash");
    EXPECT_EQ(draft["drafts"][1]["draft"], "mtp");
    for (const Json& one : draft["drafts"]) {
        EXPECT_EQ(one["guesses"], 2);
        EXPECT_GT(one["ms"]["median"], 0);
        EXPECT_GT(one["floor_ms"], 0);
        EXPECT_GT(one["bytes"]["head"], 0);
    }
    const Ran table = run_strata({"bench", "draft", "-m", tiny().path(), "--small", "-n", "1",
                                  "--depth", "3", "--repeats", "1"});
    expect_done(table);
    for (const char* part : {"mtp, 3 guesses", "floor", "% reached", "checksum"}) {
        EXPECT_NE(table.out.find(part), std::string::npos) << table.out;
    }
    const Json load =
        json_of(run_strata({"bench", "load", "-m", tiny().path(), "--repeats", "1", "--json"}));
    EXPECT_GT(load["ready_ms"]["median"], 0);
    EXPECT_GT(load["peak_resident_bytes"], 0);
}

TEST(BenchCommand, wrong_use) {
    expect_wrong_use(run_strata({"bench"}), "bench");
    expect_wrong_use(run_strata({"bench", "decode"}), "--model");
    expect_wrong_use(run_strata({"bench", "prompt", "-m", tiny().path(), "-n", "0"}), "--tokens");
    expect_wrong_use(run_strata({"bench", "decode", "-m", tiny().path(), "--rows", "17"}),
                     "1 to 16");
    expect_wrong_use(run_strata({"bench", "draft", "-m", tiny().path(), "--guesses", "16"}),
                     "1 to 15");
    expect_failed(run_strata({"bench", "load", "-m", tiny().directory() / "none"}), "none");
}

}  // namespace
}  // namespace strata::test
