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

// Rows, each beside a plain sort of its logits.
void check_rows(int experts, int active, int rows) {
    test::Random random("near ties");
    std::vector<float> logits(static_cast<std::size_t>(experts));
    std::vector<int> wanted(logits.size());
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(active));
    std::vector<float> share(chosen.size());
    for (int row = 0; row < rows; ++row) {
        // Few values, then some of them one step of F32 away.
        for (float& logit : logits) {
            const std::uint64_t bits = random.bits();
            logit = static_cast<float>(bits % 16) - 8;
            if ((bits >> 32) % 4 == 0) logit = std::nextafter(logit, 10.0f);
        }
        std::iota(wanted.begin(), wanted.end(), 0);
        std::partial_sort(wanted.begin(), wanted.begin() + active, wanted.end(), [&](int a, int b) {
            return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
        });
        choose_experts(logits.data(), experts, active, true, chosen.data(), share.data());
        ASSERT_TRUE(std::equal(chosen.begin(), chosen.end(), wanted.begin())) << "row " << row;
    }
}

TEST(Route, among_ties_and_near_ties_the_lower_expert_is_chosen_always) {
    check_rows(64, 8, 20'000);
    check_rows(8, 2, 980'000);
}

}  // namespace
}  // namespace strata::cpu
