// op/dflash_context.h, op/dflash_block.h and op/dflash_select.h in float64.
#pragma once

#include <cstdint>
#include <vector>

#include "op/dflash_block.h"
#include "op/draw.h"
#include "tests/op/oracle/formula.h"
#include "tests/support/weights.h"

namespace strata::test {

struct DflashConvParts {
    std::vector<float> base;  // [2, taps, D]
    TestWeight projection;
};

struct DflashParts {
    std::vector<float> attention_norm;
    DflashConvParts attention_conv;
    TestWeight query;
    TestWeight key;
    TestWeight value;
    TestWeight out;
    std::vector<float> query_norm;
    std::vector<float> key_norm;
    std::int64_t window = 0;
    std::vector<float> feed_norm;
    DflashConvParts feed_conv;
    TestWeight gate;
    TestWeight up;
    TestWeight down;
};

struct DflashSizes {
    std::int64_t width = 48;     // D
    std::int64_t features = 80;  // F
    std::int64_t feed = 40;      // I
    std::int64_t vocabulary = 30;
    op::DflashShape shape = {.heads = 4, .kv_heads = 2, .head_dim = 12, .rotary_pairs = 6};
    int taps = 2;
    int group = 12;
    std::vector<std::int64_t> windows = {20, 0};  // one a layer
};

struct DflashDraft {
    DflashSizes sizes;
    float epsilon = 0;
    std::vector<double> inverse_frequency;
    TestWeight fuse;
    std::vector<float> fuse_norm;
    TestWeight table;
    std::vector<DflashParts> layers;
    std::vector<float> norm;

    std::int64_t kv_width() const {
        return std::int64_t{sizes.shape.kv_heads} * sizes.shape.head_dim;
    }
};

DflashDraft random_dflash(Random& random, Types types, const DflashSizes& sizes);

struct DflashCell {
    std::int64_t position = 0;
    Row key;
    Row value;
};

// The cells of one layer for rows at first, first + 1, ...
std::vector<DflashCell> dflash_cells_oracle(const DflashDraft& draft, const DflashParts& layer,
                                            const Rows& features, std::int64_t first);

// `cells`: one list a layer, in any order.
Rows dflash_block_oracle(const DflashDraft& draft, const std::vector<std::int32_t>& tokens,
                         std::int64_t first, const std::vector<std::vector<DflashCell>>& cells);

struct DflashSelector {
    TestWeight projection;
    TestWeight predecessor;
    TestWeight successor;
    std::vector<std::int64_t> token_of_row;  // empty: each row is its token
    int candidates = 0;
};

DflashSelector random_selector(Random& random, Types types, std::int64_t width, std::int64_t rank,
                               std::int64_t vocabulary, int candidates);

struct DflashWalk {
    std::vector<std::int32_t> candidates;  // [n, K]
    Rows scores;                           // [n, K]
    std::vector<std::int32_t> path;
    Rows confidence;  // [1, n]
    std::int32_t rows = 0;
    double margin = 1;  // the smallest difference of two logits or scores that were ranked
};

// How picks are drawn.
struct DflashRule {
    op::DrawRule rule;
    std::vector<op::Penalized> penalized;
};

// `rule` null: the largest scores are picked.
DflashWalk dflash_walk_oracle(const DflashSelector& selector, const Rows& hidden,
                              const Rows& logits, std::int32_t anchor,
                              const DflashRule* rule = nullptr);

}  // namespace strata::test
