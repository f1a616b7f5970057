// Calls of op/sparse_attention.h in watched memory, one sequence carried from call to call.
#pragma once

#include <string>
#include <vector>

#include "tests/op/oracle/cache.h"
#include "tests/op/oracle/sparse_attention.h"
#include "tests/support/rig.h"

namespace strata::test {

// What one sequence keeps, as the op's memory holds it.
struct AttentionState {
    op::CacheType type = op::CacheType::f16;
    std::int64_t context = 0;
    std::int64_t rows = 0;  // so far
    std::vector<std::byte> keys;
    std::vector<std::byte> values;
    std::vector<float> block_keys;
    std::vector<float> raw;  // the last ratio-1 raw rows
};

op::CacheRow row_of(const AttentionLayer& layer, op::CacheType type);

// No rows yet; everything is poison.
AttentionState empty_attention_state(const AttentionLayer& layer, op::CacheType type,
                                     std::int64_t context);

// Cache entries as numbers, one row a position.
Rows cached_rows(const AttentionLayer& layer, const AttentionState& state,
                 const std::vector<std::byte>& cache);

struct AttentionOptions {
    bool in_place = false;  // raw_to is raw_from
    bool trace = true;
    bool y = true;
};

struct AttentionOutput {
    std::vector<float> y;
    std::vector<float> raw_trace;
};

// Runs the rows of x after those that `state` holds, and advances it. Checks that scratch beyond
// the first row is not read (it is poison), that nothing else of the caches is written, and that
// all of what belongs to the rows is.
AttentionOutput run_attention(TestBackend& backend, const std::string& label,
                              const AttentionLayer& layer, AttentionState& state,
                              const std::vector<float>& x, AttentionOptions options = {});

}  // namespace strata::test
