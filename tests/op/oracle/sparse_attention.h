// op/sparse_attention.h in float64, in the steps of its formula.
#pragma once

#include <cstdint>
#include <vector>

#include "op/sparse_attention.h"
#include "tests/op/oracle/formula.h"
#include "tests/support/weights.h"

namespace strata::test {

struct AttentionLayer {
    op::AttentionShape shape;
    TestWeight query;
    TestWeight key;
    TestWeight value;
    TestWeight out;
    TestWeight index_query;
    TestWeight index_key;
    std::vector<float> query_norm;
    std::vector<float> key_norm;
    std::vector<float> index_query_norm;
    std::vector<float> index_key_norm;
    std::vector<double> inverse_frequency;
    float epsilon = 0;

    std::int64_t width() const { return query.cols; }
    std::int64_t kv_width() const { return std::int64_t{1} * shape.kv_heads * shape.head_dim; }
    // Rows that every query sees whole: beyond, blocks are dropped.
    std::int64_t dense_rows() const {
        return std::int64_t{1} * shape.blocks_kept * shape.ratio + shape.ratio - 1;
    }
};

AttentionLayer random_attention(Random& random, Types types, const op::AttentionShape& shape,
                                std::int64_t width);

// What one row brings: everything that comes of x and the position alone.
struct AttentionRow {
    Row query;        // [H, d] after norm and rotation
    Row gate;         // [H, d]
    Row key;          // [G, d] after norm and rotation, not yet rounded
    Row value;        // [G, d]
    Row index_query;  // [HI, di] after norm and rotation
    Row raw;          // [di]
};

AttentionRow attention_row(const AttentionLayer& layer, const Row& x, std::int64_t position);

// `raw` are the `ratio` raw rows of block b.
Row attention_block_key(const AttentionLayer& layer, const Rows& raw, std::int64_t b);

struct Selection {
    std::vector<std::int64_t> blocks;  // ascending
    std::vector<std::int64_t> rows;    // ascending; the tail included
    double margin = 1;  // between the last score taken and the first left out, as a part of the
                        // larger; 1 where they are the same number or nothing is left out
};

// For a row at `position`; block_keys holds at least its complete blocks.
Selection attention_selection(const AttentionLayer& layer, const Row& index_query,
                              const Rows& block_keys, std::int64_t position);

// y of a row over the cache rows `selected`.
Row attention_read(const AttentionLayer& layer, const AttentionRow& row, const Rows& keys,
                   const Rows& values, const std::vector<std::int64_t>& selected);

}  // namespace strata::test
