// Runs of whole sequences through SparseAttention, held against the oracle row by row.
#pragma once

#include <string>
#include <vector>

#include "tests/op/run/sparse_attention.h"

namespace strata::test {

// A sequence as calls of the given numbers of rows left it.
struct AttentionSequence {
    std::vector<float> y;
    std::vector<float> raw;  // every raw row
    AttentionState state;
};

// The last of `sizes` repeats until the rows of x are done; every other call is in place.
AttentionSequence run_sequence(TestBackend& backend, const std::string& label,
                               const AttentionLayer& layer, op::CacheType type,
                               const std::vector<float>& x, const std::vector<std::int64_t>& sizes);

// Bits of y, raw rows, caches, block keys and the raw history.
void expect_same_output(const std::string& what, const AttentionSequence& got,
                        const AttentionSequence& want);

// What the oracle makes of each position of a sequence that starts at 0.
struct AttentionExpected {
    std::vector<AttentionRow> rows;
    Rows block_keys;
    std::vector<Selection> selections;
};

AttentionExpected attention_expected(const AttentionLayer& layer, const Rows& x);

// Raw rows, caches, block keys and history, then y: read by the oracle from the cache entries as
// they are stored, so that the rounding of an entry to the other side of a tie is judged once.
// Rows whose selection hangs on a near tie are left out; the others must be nearly all.
void expect_sequence(const std::string& label, const AttentionLayer& layer,
                     const AttentionExpected& want, const AttentionSequence& got,
                     Tolerance y_tolerance = Tolerance::attention());

}  // namespace strata::test
