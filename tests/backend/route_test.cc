// NUM-05: which experts a row goes to, among ties and near ties.
#include "backend/cpu/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/support/random.h"

namespace strata::cpu {
namespace {

TEST(Route, among_ties_and_near_ties_the_lower_expert_is_chosen_always) {
    constexpr int kExperts = 64;
    constexpr int kActive = 8;
    constexpr int kRows = 50'000;
    test::Random random("near ties");
    std::vector<float> logits(kExperts);
    std::vector<int> wanted(kExperts);
    for (int row = 0; row < kRows; ++row) {
        // Few values, then some of them one step of F32 away.
        for (float& logit : logits) {
            const std::uint64_t bits = random.bits();
            logit = static_cast<float>(bits % 16) - 8;
            if ((bits >> 32) % 4 == 0) logit = std::nextafter(logit, 10.0f);
        }
        std::iota(wanted.begin(), wanted.end(), 0);
        std::stable_sort(wanted.begin(), wanted.end(),
                         [&](int a, int b) { return logits[a] > logits[b]; });
        std::int32_t chosen[kActive];
        float share[kActive];
        choose_experts(logits.data(), kExperts, kActive, true, chosen, share);
        ASSERT_TRUE(std::equal(chosen, chosen + kActive, wanted.begin())) << "row " << row;
    }
}

}  // namespace
}  // namespace strata::cpu
