#include "tests/cli/expect.h"

#include <algorithm>

namespace strata::test {

void expect_done(const Ran& ran) {
    EXPECT_EQ(ran.status, 0) << "signal " << ran.signal << ", timed out " << ran.timed_out << "\n"
                             << ran.err;
    EXPECT_EQ(ran.err, "");
}

void expect_refused(const Ran& ran, int status, const std::string& part) {
    EXPECT_EQ(ran.status, status) << "signal " << ran.signal << ", timed out " << ran.timed_out
                                  << "\n"
                                  << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_NE(ran.err.find(part), std::string::npos) << ran.err;
    EXPECT_EQ(ran.err.rfind("strata: ", 0), 0U) << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_TRUE(ran.err.ends_with("\n")) << ran.err;
}

nlohmann::ordered_json json_of(const Ran& ran) {
    expect_done(ran);
    auto value = nlohmann::ordered_json::parse(ran.out, nullptr, false);
    EXPECT_FALSE(value.is_discarded()) << ran.out;
    return value;
}

}  // namespace strata::test
