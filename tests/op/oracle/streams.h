// op/stream_read.h and op/streams.h in float64.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/op/oracle/formula.h"
#include "tests/support/weights.h"

namespace strata::test {

struct StreamReadLayer {
    int streams = 0;
    std::int64_t width = 0;  // D
    std::vector<float> norm;
    TestWeight down;
    TestWeight up;
    TestWeight inject;  // may be empty
    float epsilon = 0;
};

StreamReadLayer random_stream_read(Random& random, Types types, int streams, std::int64_t width,
                                   std::int64_t rank);

struct StreamReadResult {
    Rows residual;
    Rows x;
    Rows inject;  // empty where the layer has none
};

// `block_out` and `block_inject` may be empty.
StreamReadResult stream_read_oracle(const StreamReadLayer& layer, Rows residual,
                                    const Rows& block_out, const Rows& block_inject);

struct MtpFuseLayer {
    int streams = 0;
    std::int64_t width = 0;
    TestWeight table;
    TestWeight fuse;
    std::vector<float> norm_embedding;
    std::vector<float> norm_hidden;
    float epsilon = 0;
};

MtpFuseLayer random_mtp_fuse(Random& random, Types types, int streams, std::int64_t width,
                             std::int64_t vocabulary);

Rows mtp_fuse_oracle(const MtpFuseLayer& layer, const std::vector<std::int32_t>& tokens,
                     const Rows& residual);

}  // namespace strata::test
