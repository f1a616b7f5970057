// How many guesses of a chain are computed at once.

#include "spec/chain_lengths.h"

#include <gtest/gtest.h>

namespace strata::test {
namespace {

TEST(ChainLengths, chains_that_always_go_on_are_computed_whole) {
    spec::ChainLengths lengths;
    for (int chain = 0; chain < 100; ++chain) lengths.see(7, 7);
    EXPECT_EQ(lengths.at_once(7), 7);
    EXPECT_EQ(lengths.at_once(3), 3);
    EXPECT_EQ(lengths.at_once(1), 1);
}

TEST(ChainLengths, chains_that_often_end_are_computed_as_far_as_they_nearly_always_go) {
    spec::ChainLengths lengths;
    for (int chain = 0; chain < 200; ++chain) lengths.see(chain % 2 == 0 ? 3 : 7, 7);
    EXPECT_EQ(lengths.at_once(7), 3);
    for (int chain = 0; chain < 200; ++chain) lengths.see(chain % 2 == 0 ? 1 : 2, 7);
    EXPECT_EQ(lengths.at_once(7), 1);
    for (int chain = 0; chain < 400; ++chain) lengths.see(7, 7);
    EXPECT_EQ(lengths.at_once(7), 7);
}

// The last guess of a chain says nothing of whether it would have gone on.
TEST(ChainLengths, chains_that_were_asked_for_no_more_do_not_count_as_ended) {
    spec::ChainLengths lengths;
    for (int chain = 0; chain < 100; ++chain) lengths.see(7, 7);
    for (int chain = 0; chain < 100; ++chain) lengths.see(2, 2);
    EXPECT_EQ(lengths.at_once(7), 7);
}

}  // namespace
}  // namespace strata::test
