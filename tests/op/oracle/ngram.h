// op/ngram.h in float64.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/op/oracle/formula.h"
#include "tests/support/weights.h"

namespace strata::test {

struct NgramMixLayer {
    int streams = 0;
    std::int64_t width = 0;  // D
    int kernel = 0;
    int dilation = 0;
    TestWeight key;
    TestWeight value;
    std::vector<float> norm_key;
    std::vector<float> norm_query;
    std::vector<float> norm_conv;
    std::vector<float> conv;
    float epsilon = 0;

    std::int64_t channels() const { return streams * width; }
    std::int64_t history_rows() const { return (kernel - 1) * dilation; }
};

struct NgramMixSizes {
    int streams = 4;
    std::int64_t width = 32;
    std::int64_t embedding = 64;  // DE
    int kernel = 4;
    int dilation = 3;
};

NgramMixLayer random_ngram_mix(Random& random, Types types, const NgramMixSizes& sizes);

struct NgramMixResult {
    Rows residual;
    Rows normed;   // X
    Rows history;  // the last rows of (history ++ X)
};

// `block_out` and `block_inject` may be empty.
NgramMixResult ngram_mix_oracle(const NgramMixLayer& layer, const Rows& e, Rows residual,
                                const Rows& history, const Rows& block_out,
                                const Rows& block_inject);

}  // namespace strata::test
