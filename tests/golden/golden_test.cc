#include "tests/golden/golden.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace strata {
namespace {

TEST(Golden, the_arrays_are_those_of_the_reference) {
    const Golden tiny = Golden::load("tiny");
    ASSERT_EQ(tiny.ints("short.ids").size(), 5U);
    EXPECT_EQ(tiny.shape("long.logits"), (std::vector<std::int64_t>{97, 1024}));
    const auto logits = tiny.floats("long.logits").last(1024);
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(),
              tiny.ints("long.greedy")[0]);
    const Golden odd = Golden::load("odd");
    EXPECT_EQ(odd.shape("short.mtp_logits"), (std::vector<std::int64_t>{4, 900}));
    EXPECT_FALSE(odd.has("one.mtp_logits"));
}

}  // namespace
}  // namespace strata
