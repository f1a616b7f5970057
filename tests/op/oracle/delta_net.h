// op/delta_net.h in float64: the recurrence, one row after another.
#pragma once

#include <cstdint>
#include <vector>

#include "op/delta_net.h"
#include "tests/op/oracle/formula.h"
#include "tests/support/weights.h"

namespace strata::test {

struct DeltaNetLayer {
    op::DeltaShape shape;
    op::HeadOrder order = op::HeadOrder::tiled;
    TestWeight qkv;
    TestWeight gate;
    TestWeight beta;
    TestWeight alpha;
    std::vector<float> conv;
    std::vector<float> decay_rate;
    std::vector<float> decay_bias;
    std::vector<float> norm;
    TestWeight out;
    float epsilon = 0;

    std::int64_t width() const { return qkv.cols; }
    std::int64_t memory_size() const {
        return std::int64_t{1} * shape.value_heads * shape.key_dim * shape.value_dim;
    }
    std::int64_t history_size() const { return std::int64_t{shape.kernel - 1} * shape.channels(); }
};

DeltaNetLayer random_delta_net(Random& random, Types types, const op::DeltaShape& shape,
                               std::int64_t width);

// The state of one sequence, as an op keeps it.
struct DeltaNetState {
    std::vector<float> memory;
    std::vector<float> history;
};

DeltaNetState zero_delta_state(const DeltaNetLayer& layer);
DeltaNetState random_delta_state(Random& random, const DeltaNetLayer& layer);

struct DeltaNetResult {
    Rows y;
    Rows projected;
    Rows convolved;
    Rows beta;
    Rows decay;
    Rows memory;   // [Hv] rows of dk * dv
    Rows history;  // [K-1] rows of C
};

DeltaNetResult delta_net_oracle(const DeltaNetLayer& layer, const Rows& x,
                                const DeltaNetState& from);

}  // namespace strata::test
