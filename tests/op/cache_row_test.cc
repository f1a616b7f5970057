// op/cache_row.h on every backend in the build: bytes and scales as attention stores them.
#include "op/cache_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/op/run/attention_check.h"
#include "tests/support/everywhere.h"

namespace strata::test {
namespace {

TEST(CacheRow, eight_bit_rows_are_the_exact_ones_rounded) {
    constexpr std::int64_t kWidth = 32;
    // Heads of a whole group and a short one; rows that end between multiples of 16 bytes.
    const op::AttentionShape shape{3, 3, 41, 1, 2, 2, 2, 1};
    Random random("attention eight bits");
    const auto layer = random_attention(random, Types(quant::Type::f32), shape, kWidth);
    const auto x = random.floats(9 * kWidth, -2, 2);
    const op::CacheRow exact = row_of(layer, op::CacheType::f32);
    const op::CacheRow rounded = row_of(layer, op::CacheType::q8_0);
    for (TestBackend& backend : backends()) {
        const auto want = run_sequence(backend, "exact", layer, exact.type, x, {4, 5}).state;
        const auto got = run_sequence(backend, "rounded", layer, rounded.type, x, {4, 5}).state;
        for (std::int64_t p = 0; p < got.rows; ++p) {
            const auto same = [&](const auto& bytes, const auto& values) {
                const auto row =
                    cache_row_oracle(rounded, cached_values(exact, &values[p * exact.bytes()]));
                return std::equal(row.begin(), row.end(), &bytes[p * rounded.bytes()]);
            };
            EXPECT_TRUE(same(got.keys, want.keys)) << backend.name << ", key " << p;
            EXPECT_TRUE(same(got.values, want.values)) << backend.name << ", value " << p;
        }
    }
}

TEST(CacheRow, eight_bit_groups_of_any_values_read_as_near_as_they_can) {
    // Values are the inputs: a row for each kind of group, with a short group after it.
    const op::AttentionShape shape{1, 1, 40, 1, 2, 2, 2, 1};
    Random random("attention eight bit values");
    auto layer = random_attention(random, Types(quant::Type::f32), shape, 40);
    std::vector<float> one(40 * 40);
    for (std::int64_t i = 0; i < 40; ++i) one[i * 41] = 1;
    layer.value = make_weight(quant::Type::f32, 40, 40, one);
    const float largest[] = {0.0f, -0.0f, 1e-44f, 1e-30f, 1e-6f, 3e-3f, 1.0f, 1e6f, 1e9f, 3e38f};
    const op::CacheRow row = row_of(layer, op::CacheType::q8_0);
    for (TestBackend& backend : backends()) {
        auto state = empty_attention_state(layer, row.type, 16);
        std::vector<float> x;
        for (const float most : largest) append(x, random.floats(40, -1.0 * most, most));
        x[40 * 6 + 3] = 1.0f;  // a value that is the largest, and one half way between two steps
        x[40 * 6 + 4] = -0.5f / 127.0f;
        run_attention(backend, "values", layer, state, x, {.y = false});
        for (std::int64_t p = 0; p < state.rows; ++p) {
            const auto want = cache_row_oracle(row, slice(x, p, 1, 40));
            EXPECT_TRUE(std::equal(want.begin(), want.end(), &state.values[p * row.bytes()]))
                << backend.name << ", values up to " << largest[p];
        }
    }
}

TEST(CacheRow, what_is_not_finite_spoils_its_eight_bit_group_and_no_other) {
    const op::AttentionShape shape{1, 1, 40, 1, 2, 2, 2, 1};
    Random random("attention eight bits not finite");
    auto layer = random_attention(random, Types(quant::Type::f32), shape, 40);
    const op::CacheRow row = row_of(layer, op::CacheType::q8_0);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        std::vector<float> diagonal(40 * 40);
        for (std::int64_t i = 0; i < 40; ++i) diagonal[i * 41] = i == 35 ? bad : 1.0f;
        layer.value = make_weight(quant::Type::f32, 40, 40, diagonal);
        for (TestBackend& backend : backends()) {
            auto state = empty_attention_state(layer, row.type, 1);
            auto x = random.floats(40, 0.5, 1);
            run_attention(backend, "not finite", layer, state, x, {.y = false});
            x[35] = bad;
            EXPECT_TRUE(state.values == cache_row_oracle(row, x)) << backend.name << ", " << bad;
            const auto values = cached_values(row, state.values.data());
            for (int i = 0; i < 40; ++i) EXPECT_EQ(std::isfinite(values[i]), i < 32) << i;
        }
    }
}

}  // namespace
}  // namespace strata::test
