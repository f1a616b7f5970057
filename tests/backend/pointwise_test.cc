#include "backend/cpu/pointwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend/cpu/cache.h"
#include "quant/half.h"
#include "tests/support/random.h"

namespace strata::cpu {
namespace {

// Distance from the exact value in units in the last place of the result's binade.
double error_of_exponential(float x) {
    const double exact = std::exp(static_cast<double>(x));
    int exponent = 0;
    std::frexp(std::max(exact, 0x1p-126), &exponent);
    return std::fabs(static_cast<double>(exponential(x)) - exact) / std::ldexp(1.0, exponent - 24);
}

TEST(Pointwise, exp_is_within_its_bound_over_all_magnitudes) {
    double worst = 0;
    // A stride without a factor in common with the bits: every exponent, mantissas everywhere.
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 20011) {
        const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
        if (x > -103.0f && x < 88.7f) worst = std::max(worst, error_of_exponential(x));
    }
    EXPECT_LE(worst, kExpError);
    EXPECT_GT(worst, 0.4);
}

TEST(Pointwise, exp_has_the_right_edges) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(exponential(0.0f), 1.0f);
    EXPECT_EQ(exponential(-0.0f), 1.0f);
    EXPECT_EQ(exponential(kInfinity), kInfinity);
    EXPECT_EQ(exponential(89.0f), kInfinity);
    EXPECT_EQ(exponential(-kInfinity), 0.0f);
    EXPECT_EQ(exponential(-104.0f), 0.0f);
    EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
    EXPECT_EQ(sigmoid(-kInfinity), 0.0f);
    EXPECT_EQ(sigmoid(kInfinity), 1.0f);
}

// Every pass over rows, on lengths with and without a rest, one result after another.
std::vector<float> run_passes(Instructions set) {
    std::vector<float> all;
    test::Random random("passes");
    for (const std::int64_t n : {1, 7, 16, 33, 250}) {
        const std::vector<float> x = random.floats(n, -12, 12);
        const std::vector<float> y = random.floats(n, -3, 3);
        const std::vector<float> taps = random.floats(4 * n, -1, 1);
        const float* rows[] = {x.data(), y.data(), x.data(), y.data()};
        std::vector<float> out = x;
        const auto keep = [&] {
            all.insert(all.end(), out.begin(), out.end());
            out = x;
        };
        rms_norm(set, out.data(), y.data(), n, 1e-6f, out.data());
        keep();
        silu_row(set, out.data(), n, 0.25f);
        keep();
        silu_product(set, out.data(), y.data(), n);
        keep();
        gate_row(set, out.data(), y.data(), n, 0.5f);
        keep();
        out.push_back(softmax_weights(set, out.data(), n, 0.7f));
        keep();
        for (const int kernel : {3, 4}) {
            convolve_silu(set, rows, kernel, taps.data(), 0, n, out.data());
            keep();
        }
    }
    return all;
}

TEST(Pointwise, passes_give_the_same_bits_with_every_set_of_instructions) {
    const std::vector<float> wanted = run_passes(Instructions::scalar);
    for (const Instructions set : {Instructions::avx2, Instructions::avx512}) {
        if (set > fastest_instructions()) continue;
        const std::vector<float> got = run_passes(set);
        ASSERT_EQ(got.size(), wanted.size());
        for (std::size_t i = 0; i < got.size(); ++i) {
            ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(wanted[i]))
                << i << " with set " << static_cast<int>(set);
        }
    }
}

TEST(Pointwise, every_half_is_widened_exactly) {
    std::vector<std::uint16_t> halves(1 << 16);
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
    for (const Instructions set :
         {Instructions::scalar, Instructions::avx2, Instructions::avx512}) {
        if (set > fastest_instructions()) continue;
        std::vector<float> wide(halves.size());
        widen(set, halves.data(), static_cast<std::int64_t>(halves.size()), wide.data());
        for (std::size_t i = 0; i < halves.size(); ++i) {
            const float wanted = quant::f16_to_f32(halves[i]);
            if (std::isnan(wanted)) {
                ASSERT_TRUE(std::isnan(wide[i]));
            } else {
                ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]),
                          std::bit_cast<std::uint32_t>(wanted));
            }
        }
    }
}

}  // namespace
}  // namespace strata::cpu
