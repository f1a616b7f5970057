#include "tests/support/compare.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace strata::test {
namespace {

// The element that is farthest outside (or nearest to the edge of) a tolerance.
struct Worst {
    double ratio = 0;  // of the difference to what is allowed
    std::size_t row = 0;
    std::size_t column = 0;
    double got = 0;
    double want = 0;
};

double root_mean_square(const Row& row) {
    double sum = 0;
    for (const double value : row) sum += value * value;
    return row.empty() ? 0 : std::sqrt(sum / static_cast<double>(row.size()));
}

double ratio_of(double got, double want, double allowed) {
    if (std::isnan(got) || std::isnan(want)) return std::numeric_limits<double>::infinity();
    const double difference = std::abs(got - want);
    if (difference == 0) return 0;
    return allowed == 0 ? std::numeric_limits<double>::infinity() : difference / allowed;
}

Worst worst_of(const std::vector<float>& got, const Rows& want, Tolerance tolerance) {
    Worst worst;
    std::size_t i = 0;
    for (std::size_t r = 0; r < want.size(); ++r) {
        const double scale = root_mean_square(want[r]);
        for (std::size_t c = 0; c < want[r].size(); ++c, ++i) {
            const double allowed =
                tolerance.relative * std::abs(want[r][c]) + tolerance.scaled * scale;
            const double ratio = ratio_of(got[i], want[r][c], allowed);
            if (ratio > worst.ratio) worst = {ratio, r, c, got[i], want[r][c]};
        }
    }
    return worst;
}

std::size_t size_of(const Rows& rows) {
    std::size_t size = 0;
    for (const Row& row : rows) size += row.size();
    return size;
}

std::string describe(const std::string& what, const Worst& worst, Tolerance tolerance) {
    std::ostringstream out;
    out.precision(9);
    out << what << ": worst at row " << worst.row << ", column " << worst.column << ": got "
        << worst.got << ", want " << worst.want << ", " << worst.ratio
        << " times Tolerance::" << tolerance.name;
    return out.str();
}

}  // namespace

Rows rows_of(const std::vector<float>& flat, std::int64_t cols) {
    Rows rows;
    for (auto at = flat.begin(); at != flat.end(); at += cols) rows.emplace_back(at, at + cols);
    return rows;
}

std::vector<float> flat(const Rows& rows) {
    std::vector<float> values;
    for (const Row& row : rows) {
        for (const double value : row) values.push_back(static_cast<float>(value));
    }
    return values;
}

void expect_close(const std::string& what, const std::vector<float>& got, const Rows& want,
                  Tolerance tolerance) {
    ASSERT_EQ(got.size(), size_of(want)) << what;
    const Worst worst = worst_of(got, want, tolerance);
    EXPECT_LE(worst.ratio, 1) << describe(what, worst, tolerance);
}

void expect_close(const std::string& what, const std::vector<float>& got,
                  const std::vector<float>& want, std::int64_t cols, Tolerance tolerance) {
    expect_close(what, got, rows_of(want, cols), tolerance);
}

void expect_far(const std::string& what, const std::vector<float>& got, const Rows& want,
                Tolerance tolerance) {
    ASSERT_EQ(got.size(), size_of(want)) << what;
    const Worst worst = worst_of(got, want, tolerance);
    EXPECT_GE(worst.ratio, 10) << describe(what, worst, tolerance);
}

void expect_same_bits(const std::string& what, const std::vector<float>& got,
                      const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size()) << what;
    std::size_t different = 0;
    std::size_t first = 0;
    for (std::size_t i = got.size(); i-- > 0;) {
        if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(want[i])) {
            ++different;
            first = i;
        }
    }
    if (different == 0) return;
    ADD_FAILURE() << what << ": " << different << " of " << got.size()
                  << " values differ in bits, first at " << first << ": got "
                  << testing::PrintToString(got[first]) << ", want "
                  << testing::PrintToString(want[first]) << ", ratio " << got[first] / want[first];
}

void expect_equal(const std::string& what, const std::vector<std::int32_t>& got,
                  const std::vector<std::int32_t>& want) {
    ASSERT_EQ(got.size(), want.size()) << what;
    for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i], want[i]) << what << ": at " << i;
    }
}

}  // namespace strata::test
