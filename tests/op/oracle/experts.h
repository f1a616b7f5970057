// op/experts.h in float64.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/op/oracle/formula.h"
#include "tests/support/weights.h"

namespace strata::test {

struct ExpertsLayer {
    int active = 0;
    bool renormalize = true;
    TestWeight router;
    std::vector<TestWeight> gate;  // one an expert
    std::vector<TestWeight> up;
    std::vector<TestWeight> down;
    TestWeight shared_scale;
    TestWeight shared_gate;
    TestWeight shared_up;
    TestWeight shared_down;
};

struct ExpertsSizes {
    std::int64_t width = 64;          // D
    std::int64_t experts = 16;        // E
    std::int64_t hidden = 32;         // F
    std::int64_t shared_hidden = 32;  // FS
    int active = 4;                   // k
};

ExpertsLayer random_experts(Random& random, Types types, const ExpertsSizes& sizes);

struct ExpertsResult {
    Rows y;
    std::vector<std::int32_t> chosen;  // [T, k]
    Rows share;                        // [T, k]
    double margin = 1;  // the smallest difference between two ranked probabilities, as a part of
                        // the larger, 0 for equals
};

ExpertsResult experts_oracle(const ExpertsLayer& layer, const Rows& x);

}  // namespace strata::test
