// Figures of single rows against values worked out by hand.
#include "eval/row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace strata::eval {
namespace {

// Of values near 1 in double precision, whose inputs are exact floats.
constexpr double kRounding = 1e-12;
// Of sums of 200,000 terms.
constexpr double kLongSumRounding = 1e-10;

using Row = std::vector<float>;

TEST(EvalRow, equal_logits_give_the_logarithm_of_their_number) {
    EXPECT_NEAR(nats(Row{0, 0, 0, 0}, 2), std::log(4.0), kRounding);
    EXPECT_NEAR(nats(Row{-7, -7}, 0), std::log(2.0), kRounding);
    EXPECT_NEAR(nats(Row{5}, 0), 0, kRounding);
}

TEST(EvalRow, a_difference_of_one_nat_is_one_nat) {
    const Row row = {2, 1};
    EXPECT_NEAR(nats(row, 1) - nats(row, 0), 1, kRounding);
    EXPECT_NEAR(nats(row, 0), std::log1p(std::exp(-1.0)), kRounding);
}

TEST(EvalRow, logits_far_from_0_neither_overflow_nor_vanish) {
    for (const float shift : {-30000.0f, 0.0f, 30000.0f}) {
        EXPECT_NEAR(nats(Row{shift + 2, shift + 1, shift}, 2),
                    2 + std::log1p(std::exp(-1.0) + std::exp(-2.0)), kRounding)
            << shift;
    }
    EXPECT_NEAR(nats(Row{30000, -30000}, 1), 60000, kRounding);
}

// A float sum would lose every one of the small terms beside the large one.
TEST(EvalRow, a_long_tail_counts) {
    Row row(200001, -18);
    row[0] = 0;
    EXPECT_NEAR(nats(row, 0), std::log1p(200000 * std::exp(-18.0)), kLongSumRounding);
}

TEST(EvalRow, logits_that_are_not_finite_show) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const Row& row : {Row{0, nan}, Row{nan, 0}, Row{0, infinity}, Row{0, 0, nan}}) {
        EXPECT_FALSE(std::isfinite(nats(row, 0)));
        EXPECT_FALSE(std::isfinite(divergence(Row(row.size(), 0), row)));
        EXPECT_FALSE(std::isfinite(divergence(row, Row(row.size(), 0))));
    }
}

TEST(EvalRow, divergence_is_of_the_second_from_the_first) {
    // Q = (3/4, 1/4), P = (1/2, 1/2).
    const Row q = {std::log(3.0f), 0};
    const Row p = {1, 1};
    const double three = std::exp(static_cast<double>(q[0]));
    const double share = three / (three + 1);
    const double want = share * std::log(2 * share) + (1 - share) * std::log(2 * (1 - share));
    EXPECT_NEAR(want, 0.130812, 1e-6);
    EXPECT_NEAR(divergence(q, p), want, kRounding);
    EXPECT_NEAR(divergence(p, q), -0.5 * std::log(4 * share * (1 - share)), kRounding);
}

TEST(EvalRow, a_shift_of_all_logits_is_no_divergence) {
    EXPECT_NEAR(divergence(Row{3, 2, 1}, Row{103, 102, 101}), 0, kRounding);
    EXPECT_GE(divergence(Row{3, 2, 1}, Row{103, 102, 101}), 0);
    EXPECT_EQ(divergence(Row{3, 2, 1}, Row{3, 2, 1}), 0);
}

TEST(EvalRow, of_equal_logits_the_lower_is_the_top) {
    EXPECT_EQ(top(Row{1, 4, 4, 2}), 1U);
    EXPECT_EQ(top(Row{-1}), 0U);
}

TEST(EvalRow, a_mean_comes_with_its_standard_error) {
    MeanOf values;
    EXPECT_EQ(values.mean().error, 0);
    for (const double value : {1.0, 2.0, 3.0, 4.0}) values.add(value);
    EXPECT_EQ(values.count(), 4);
    EXPECT_NEAR(values.sum(), 10, kRounding);
    EXPECT_NEAR(values.mean().value, 2.5, kRounding);
    // The sample's variance is 5/3, and that of the mean a quarter of it.
    EXPECT_NEAR(values.mean().error, std::sqrt(5.0 / 12), kRounding);
}

}  // namespace
}  // namespace strata::eval
