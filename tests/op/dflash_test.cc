// op/dflash_*.h on every backend in the build, against a float64 oracle.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/op/run/dflash.h"
#include "tests/support/everywhere.h"

namespace strata::test {
namespace {

constexpr std::int64_t kBlockRows[] = {1, 2, 3, 7, 8, 16};

std::vector<std::int32_t> random_tokens(Random& random, std::int64_t count, std::int64_t below) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < count; ++i) {
        tokens.push_back(static_cast<std::int32_t>(random.integer(0, below - 1)));
    }
    return tokens;
}

std::vector<DflashRing> empty_rings(const DflashDraft& draft, op::CacheType type,
                                    std::int64_t slots) {
    return std::vector<DflashRing>(draft.layers.size(), empty_ring(draft, type, slots));
}

void check_inject(const std::string& label, const DflashDraft& draft,
                  const std::vector<float>& features, std::int64_t first, op::CacheType type,
                  std::int64_t slots) {
    const Rows x = rows_of(features, draft.sizes.features);
    const auto rows = static_cast<std::int64_t>(x.size());
    on_backends(
        label,
        [&](TestBackend& b) {
            return run_inject(b, label, draft, features, first, empty_rings(draft, type, slots));
        },
        [&](const DflashInjected& got) {
            for (std::size_t l = 0; l < draft.layers.size(); ++l) {
                const auto cells = dflash_cells_oracle(draft, draft.layers[l], x, first);
                const DflashRing& ring = got.rings[l];
                std::vector<std::int32_t> position(static_cast<std::size_t>(slots), -1);
                for (std::int64_t t = std::max<std::int64_t>(0, rows - slots); t < rows; ++t) {
                    const std::int64_t slot = (first + t) % slots;
                    position[slot] = static_cast<std::int32_t>(first + t);
                    expect_cached(label + ", key", ring.row, ring.key(slot), {cells[t].key});
                    expect_cached(label + ", value", ring.row, ring.value(slot), {cells[t].value});
                }
                expect_equal(label + ", positions", ring.position, position);
            }
        });
}

TEST(DflashInject, matches_the_oracle_for_every_number_of_rows) {
    Random random("dflash inject rows");
    const DflashDraft draft = random_dflash(random, Types(quant::Type::bf16), {});
    for (const op::CacheType type : kCacheTypes) {
        for (const std::int64_t rows : kRowCounts) {
            check_inject("T=" + std::to_string(rows), draft,
                         random.floats(rows * draft.sizes.features, -2, 2), 5, type, 140);
        }
    }
}

TEST(DflashInject, matches_the_oracle_in_every_weight_type) {
    for (const quant::Type type : kWeightTypes) {
        Random random("dflash inject types", static_cast<std::uint64_t>(type));
        DflashSizes sizes;
        sizes.width = 64;
        sizes.features = 96;
        sizes.feed = 32;
        sizes.group = 16;
        sizes.shape = {.heads = 4, .kv_heads = 2, .head_dim = 16, .rotary_pairs = 5};
        const DflashDraft draft = random_dflash(random, Types(type), sizes);
        check_inject(std::string(quant::info(type).name), draft, random.floats(3 * 96, -2, 2), 0,
                     op::CacheType::f32, 4);
    }
}

TEST(DflashInject, a_ring_keeps_the_last_rows_whatever_came_before) {
    Random random("dflash inject ring");
    const DflashDraft draft = random_dflash(random, Types(quant::Type::bf16), {});
    for (const std::int64_t slots : {1, 3, 10}) {
        for (const std::int64_t first : {0, 1, 17}) {
            check_inject("ring of " + std::to_string(slots), draft,
                         random.floats(11 * draft.sizes.features, -2, 2), first,
                         op::CacheType::q8_0, slots);
        }
    }
}

// On both sides of the layers whose products, and whose cells, one launch has.
TEST(DflashInject, matches_the_oracle_for_every_number_of_layers) {
    Random random("dflash inject layers");
    for (const std::size_t layers : {4, 5, 8, 9}) {
        DflashSizes sizes;
        sizes.windows.assign(layers, 0);
        const DflashDraft draft = random_dflash(random, Types(quant::Type::f16), sizes);
        check_inject(std::to_string(layers) + " layers", draft,
                     random.floats(2 * sizes.features, -2, 2), 3, op::CacheType::f16, 4);
    }
}

// Rows wide enough for products that take several at once.
DflashSizes wide_sizes() {
    DflashSizes sizes;
    sizes.width = 256;
    sizes.features = 768;
    sizes.group = 16;
    return sizes;
}

TEST(DflashInject, matches_the_oracle_where_rows_are_wide) {
    Random random("dflash inject wide");
    const DflashSizes sizes = wide_sizes();
    const DflashDraft draft = random_dflash(random, Types(quant::Type::bf16), sizes);
    for (const std::int64_t rows : {1, 4, 9}) {
        check_inject("wide, T=" + std::to_string(rows), draft,
                     random.floats(rows * sizes.features, -2, 2), 2, op::CacheType::f16, 20);
    }
}

TEST(DflashInject, each_row_is_bit_identical_to_that_row_alone) {
    Random random("dflash inject alone");
    for (const DflashSizes& sizes : {DflashSizes{}, wide_sizes()}) {
        const DflashDraft draft = random_dflash(random, Types(quant::Type::bf16), sizes);
        const auto features = random.floats(17 * sizes.features, -2, 2);
        for (TestBackend& backend : backends()) {
            auto rings = empty_rings(draft, op::CacheType::q8_0, 12);
            const auto together = run_inject(backend, "together", draft, features, 3, rings).rings;
            for (std::int64_t t = 0; t < 17; ++t) {
                const auto row = slice(features, t, 1, sizes.features);
                rings = run_inject(backend, "alone", draft, row, 3 + t, rings).rings;
            }
            expect_same_output(backend.name, together, rings);
        }
    }
}

TEST(DflashInject, features_that_are_not_finite_count_as_zero_and_are_counted) {
    Random random("dflash inject finite");
    const DflashDraft draft = random_dflash(random, Types(quant::Type::bf16), {});
    const std::int64_t width = draft.sizes.features;
    auto features = random.floats(3 * width, -2, 2);
    features[1] = std::numeric_limits<float>::quiet_NaN();
    features[width + 2] = std::numeric_limits<float>::infinity();
    features[width + 9] = -std::numeric_limits<float>::infinity();
    check_inject("not finite", draft, features, 0, op::CacheType::f32, 4);
    for (TestBackend& backend : backends()) {
        const auto rings = empty_rings(draft, op::CacheType::f32, 4);
        EXPECT_EQ(run_inject(backend, "count", draft, features, 0, rings).replaced,
                  (std::vector<std::int32_t>{1, 2, 0}));
    }
}

void check_block(const std::string& label, const DflashDraft& draft,
                 const std::vector<std::int32_t>& tokens, std::int64_t first,
                 const std::vector<DflashRing>& rings,
                 const Tolerance& tolerance = Tolerance::attention()) {
    std::vector<std::vector<DflashCell>> cells;
    for (const DflashRing& ring : rings) cells.push_back(cells_of(ring));
    const Rows want = dflash_block_oracle(draft, tokens, first, cells);
    on_backends(
        label, [&](TestBackend& b) { return run_block(b, label, draft, tokens, first, rings); },
        [&](const std::vector<float>& got) { expect_close(label, got, want, tolerance); });
}

// Rings with a random cell for each position of [from, to).
std::vector<DflashRing> filled_rings(const DflashDraft& draft, Random& random, op::CacheType type,
                                     std::int64_t slots, std::int64_t from, std::int64_t to) {
    auto rings = empty_rings(draft, type, slots);
    for (DflashRing& ring : rings) {
        for (std::int64_t p = from; p < to; ++p) put_cell(ring, random, p);
    }
    return rings;
}

TEST(DflashBlock, matches_the_oracle_for_every_number_of_rows) {
    Random random("dflash block rows");
    const DflashDraft draft = random_dflash(random, Types(quant::Type::bf16), {});
    for (const op::CacheType type : kCacheTypes) {
        for (const std::int64_t rows : kBlockRows) {
            for (const std::int64_t first : {0, 1, 19, 20, 33}) {
                const auto rings = filled_rings(draft, random, type, 40, 0, first);
                check_block("B=" + std::to_string(rows) + " at " + std::to_string(first), draft,
                            random_tokens(random, rows, 30), first, rings);
            }
        }
    }
}

TEST(DflashBlock, matches_the_oracle_in_every_weight_type) {
    for (const quant::Type type : kWeightTypes) {
        Random random("dflash block types", static_cast<std::uint64_t>(type));
        DflashSizes sizes;
        sizes.width = 64;
        sizes.features = 96;
        sizes.feed = 96;
        sizes.group = 16;
        sizes.shape = {.heads = 8, .kv_heads = 2, .head_dim = 16, .rotary_pairs = 8};
        const DflashDraft draft = random_dflash(random, Types(type), sizes);
        check_block(std::string(quant::info(type).name), draft, random_tokens(random, 5, 30), 30,
                    filled_rings(draft, random, op::CacheType::f16, 40, 0, 30));
    }
}

TEST(DflashBlock, matches_the_oracle_in_odd_shapes) {
    const struct {
        op::DflashShape shape;
        std::int64_t width;
        int taps;
        int group;
        std::vector<std::int64_t> windows;
    } cases[] = {{{1, 1, 2, 1}, 3, 1, 1, {0}},
                 {{3, 1, 5, 2}, 7, 4, 7, {4}},      // taps and window within the block
                 {{6, 3, 4, 1}, 10, 3, 5, {1, 9}},  // a row that sees itself alone
                 {{2, 2, 17, 8}, 33, 2, 11, {0, 5, 100}}};
    for (const auto& one : cases) {
        Random random("dflash block shapes", static_cast<std::uint64_t>(one.width));
        DflashSizes sizes;
        sizes.width = one.width;
        sizes.features = 5;
        sizes.feed = 9;
        sizes.shape = one.shape;
        sizes.taps = one.taps;
        sizes.group = one.group;
        sizes.windows = one.windows;
        const DflashDraft draft = random_dflash(random, Types(quant::Type::f32), sizes);
        check_block("width " + std::to_string(one.width), draft, random_tokens(random, 8, 30), 12,
                    filled_rings(draft, random, op::CacheType::f32, 12, 0, 12));
    }
}

TEST(DflashBlock, wide_rows_are_the_same_on_any_number_of_threads) {
    Random random("dflash block wide");
    DflashSizes sizes;
    sizes.width = 256;
    sizes.feed = 320;
    sizes.group = 16;
    sizes.shape = {.heads = 8, .kv_heads = 2, .head_dim = 128, .rotary_pairs = 32};
    sizes.windows = {100};
    const DflashDraft draft = random_dflash(random, Types(quant::Type::bf16), sizes);
    for (const std::int64_t rows : {2, 8}) {
        check_block("wide", draft, random_tokens(random, rows, 30), 130,
                    filled_rings(draft, random, op::CacheType::f16, 116, 14, 130));
    }
}

// Heads of published models, more of a key head than a block of threads takes, and cells on both
// sides of what blocks of threads go through once.
TEST(DflashBlock, heads_of_128_match_the_oracle_for_every_number_of_cells) {
    DflashSizes sizes;
    sizes.width = 32;
    sizes.feed = 32;
    sizes.group = 16;
    sizes.shape = {.heads = 6, .kv_heads = 1, .head_dim = 128, .rotary_pairs = 64};
    for (const std::int64_t window : {0, 961}) {
        sizes.windows = {window};
        Random random("dflash block heads", static_cast<std::uint64_t>(window));
        const DflashDraft draft = random_dflash(random, Types(quant::Type::f32), sizes);
        for (const op::CacheType type : kCacheTypes) {
            for (const std::int64_t first : {0, 31, 480, 481, 1000}) {
                check_block("at " + std::to_string(first), draft, random_tokens(random, 2, 30),
                            first, filled_rings(draft, random, type, 1010, 0, first));
            }
        }
    }
}

TEST(DflashBlock, heads_of_128_match_the_oracle_with_several_key_heads) {
    Random random("dflash block key heads");
    DflashSizes sizes;
    sizes.width = 32;
    sizes.feed = 32;
    sizes.group = 16;
    sizes.windows = {0};
    sizes.shape = {.heads = 12, .kv_heads = 2, .head_dim = 128, .rotary_pairs = 64};
    const DflashDraft draft = random_dflash(random, Types(quant::Type::f32), sizes);
    check_block("of 12 heads", draft, random_tokens(random, 3, 30), 40,
                filled_rings(draft, random, op::CacheType::f16, 50, 0, 40));
}

TEST(DflashBlock, more_rows_than_are_attended_to_together_match_the_oracle) {
    Random random("dflash block rows together");
    DflashSizes sizes;
    sizes.width = 32;
    sizes.feed = 32;
    sizes.group = 16;
    for (const int dim : {128, 8}) {
        sizes.shape = {.heads = 2, .kv_heads = 1, .head_dim = dim, .rotary_pairs = 4};
        for (const std::int64_t window : {0, 5}) {
            sizes.windows = {window};
            const DflashDraft draft = random_dflash(random, Types(quant::Type::f32), sizes);
            for (const std::int64_t rows : {32, 33}) {
                check_block("B=" + std::to_string(rows), draft, random_tokens(random, rows, 30), 3,
                            filled_rings(draft, random, op::CacheType::f16, 10, 0, 3));
            }
        }
    }
}

// Widths and formats on both sides of what kernels take that do all before a product at once.
TEST(DflashBlock, rows_of_many_columns_match_the_oracle) {
    const struct {
        std::int64_t width;
        int taps;
        int group;
        quant::Type type;
        std::int64_t rows;
        quant::Type projection = quant::Type::bf16;
    } cases[] = {{384, 2, 16, quant::Type::q8_0, 3, quant::Type::f16},
                 {384, 2, 16, quant::Type::q8_0, 3, quant::Type::f32},
                 {384, 2, 16, quant::Type::bf16, 8},
                 {384, 2, 16, quant::Type::bf16, 9},
                 {384, 1, 16, quant::Type::bf16, 3},
                 {384, 2, 32, quant::Type::bf16, 3},
                 {384, 3, 16, quant::Type::q8_0, 4},
                 {320, 2, 16, quant::Type::q8_0, 4},
                 {256, 2, 16, quant::Type::q8_0, 8},
                 {256, 2, 16, quant::Type::q4_k, 4},
                 {256, 2, 16, quant::Type::f16, 4},
                 {128, 2, 16, quant::Type::q4_0, 4},
                 {2688, 2, 16, quant::Type::q8_0, 2},
                 {2560, 2, 16, quant::Type::q4_0, 1}};
    for (const auto& one : cases) {
        Random random("dflash block columns", static_cast<std::uint64_t>(one.width));
        DflashSizes sizes;
        sizes.width = one.width;
        sizes.features = 256;
        sizes.feed = 256;
        sizes.taps = one.taps;
        sizes.group = one.group;
        sizes.shape = {.heads = 2, .kv_heads = 1, .head_dim = 128, .rotary_pairs = 8};
        sizes.windows = {0};
        DflashDraft draft = random_dflash(random, Types(one.type), sizes);
        const std::int64_t deltas = 2 * one.taps * (one.width / one.group);
        for (DflashParts& layer : draft.layers) {
            layer.attention_conv.projection =
                random_weight(random, one.projection, deltas, one.width);
            layer.feed_conv.projection = random_weight(random, one.projection, deltas, one.width);
        }
        const bool rounds = quant::info(one.type).integers != nullptr;
        check_block("width " + std::to_string(one.width), draft,
                    random_tokens(random, one.rows, 30), 2,
                    filled_rings(draft, random, op::CacheType::f16, 4, 0, 2),
                    rounds ? Tolerance::rounded_inputs() : Tolerance::attention());
    }
}

// Sums that are long enough for kernels to cut them, and more rows than some take at a time.
TEST(DflashBlock, matches_the_oracle_where_sums_are_long) {
    Random random("dflash block long");
    DflashSizes sizes;
    sizes.width = 256;
    sizes.feed = 2816;
    sizes.group = 16;
    sizes.shape = {.heads = 8, .kv_heads = 2, .head_dim = 32, .rotary_pairs = 16};
    sizes.windows = {0};
    const DflashDraft draft = random_dflash(random, Types(quant::Type::bf16), sizes);
    for (const std::int64_t rows : {1, 2, 8, 11}) {
        check_block("long", draft, random_tokens(random, rows, 30), 5,
                    filled_rings(draft, random, op::CacheType::f16, 12, 0, 5));
    }
}

TEST(DflashBlock, cells_are_seen_by_their_position_and_not_by_their_slot) {
    Random random("dflash block position");
    DflashSizes sizes;
    sizes.windows = {20, 6};
    const DflashDraft draft = random_dflash(random, Types(quant::Type::bf16), sizes);
    // Slots of 25 hold positions of before, gaps and guesses that were refused.
    auto rings = filled_rings(draft, random, op::CacheType::f32, 25, 8, 33);
    for (DflashRing& ring : rings) {
        ring.position[20] = -1;
        put_cell(ring, random, 37);
        put_cell(ring, random, 49);
    }
    for (const std::int64_t first : {28, 30, 33, 40, 80}) {
        check_block("at " + std::to_string(first), draft, random_tokens(random, 6, 30), first,
                    rings);
    }
}

void check_walk(const std::string& label, const DflashSelector& selector,
                const std::vector<float>& hidden, const std::vector<float>& logits,
                std::int64_t vocabulary_rows, std::int32_t anchor,
                const DflashRule* rule = nullptr) {
    const DflashWalk want = dflash_walk_oracle(selector, rows_of(hidden, selector.projection.cols),
                                               rows_of(logits, vocabulary_rows), anchor, rule);
    ASSERT_GT(want.margin, kRankingMargin) << label << ": a near tie says nothing";
    const std::int64_t n = static_cast<std::int64_t>(logits.size()) / vocabulary_rows;
    const std::int64_t k = selector.candidates;
    on_backends(
        label,
        [&](TestBackend& b) {
            return run_select(b, label, selector, hidden, logits, vocabulary_rows, anchor, rule);
        },
        [&](const DflashWalked& got) {
            ASSERT_EQ(got.rows, want.rows) << label;
            auto candidates = want.candidates;
            auto path = want.path;
            candidates.resize(n * k, -1);
            path.resize(n, -1);
            expect_equal(label + ", candidates", got.candidates, candidates);
            expect_equal(label + ", path", got.path, path);
            expect_close(label + ", scores", slice(got.scores, 0, want.rows, k), want.scores,
                         Tolerance::projection());
            expect_close(label + ", confidence", slice(got.confidence, 0, want.rows, 1),
                         want.confidence, Tolerance::attention());
            for (std::int64_t i = want.rows; i < n; ++i) EXPECT_EQ(got.confidence[i], 0);
            for (std::int64_t i = want.rows * k; i < n * k; ++i) EXPECT_EQ(got.scores[i], 0);
        });
}

// Logits of which no two of a row are close.
std::vector<float> apart(Random& random, std::int64_t rows, std::int64_t cols) {
    std::vector<float> logits;
    for (std::int64_t i = 0; i < rows; ++i) {
        std::vector<float> row;
        for (std::int64_t r = 0; r < cols; ++r) {
            row.push_back(static_cast<float>(r) * 0.05f +
                          static_cast<float>(random.uniform(0, 0.01)));
        }
        random.shuffle(row);
        append(logits, row);
    }
    return logits;
}

TEST(DflashSelect, matches_the_oracle_for_every_number_of_rows) {
    for (const quant::Type type : kWeightTypes) {
        Random random("dflash select", static_cast<std::uint64_t>(type));
        const DflashSelector selector = random_selector(random, Types(type), 64, 32, 70, 6);
        for (const std::int64_t n : {1, 2, 7, 15}) {
            check_walk("n=" + std::to_string(n), selector, random.floats(n * 64, -2, 2),
                       apart(random, n, 70), 70, 13);
        }
    }
}

// Tables of one type and of several, and scores on both sides of what the walk keeps at hand.
TEST(DflashSelect, tables_of_any_types_and_walks_of_any_length_match_the_oracle) {
    Random random("dflash select tables");
    for (const int k : {16, 23, 24}) {
        const DflashSelector selector = random_selector(random, Types::mixed(), 64, 300, 70, k);
        check_walk("k=" + std::to_string(k), selector, random.floats(15 * 64, -2, 2),
                   apart(random, 15, 70), 70, 13);
    }
}

TEST(DflashSelect, the_rows_of_a_draft_vocabulary_stand_for_their_tokens) {
    Random random("dflash select map");
    for (const int k : {1, 3, 10}) {
        DflashSelector selector = random_selector(random, Types(quant::Type::bf16), 9, 5, 100, k);
        for (std::int64_t r = 0; r < 10; ++r) selector.token_of_row.push_back(r * r + 3);
        check_walk("k=" + std::to_string(k), selector, random.floats(4 * 9, -2, 2),
                   apart(random, 4, 10), 10, 99);
    }
}

TEST(DflashSelect, candidates_come_from_all_over_a_long_vocabulary) {
    Random random("dflash select long");
    const DflashSelector selector = random_selector(random, Types(quant::Type::f16), 4, 3, 9000, 5);
    check_walk("long", selector, random.floats(2 * 4, -2, 2), apart(random, 2, 9000), 9000, 8999);
}

// More candidates than a warp has lanes, and as many as there can be.
TEST(DflashSelect, as_many_candidates_as_there_can_be_are_walked_and_drawn_from) {
    Random random("dflash select many");
    for (const int k : {32, 33, 64}) {
        const DflashSelector selector =
            random_selector(random, Types(quant::Type::bf16), 9, 5, 200, k);
        DflashRule told{{.temperature = 2, .top_p = 0.9, .seed = 5, .position = 11}, {}};
        std::fill(std::begin(told.rule.leaves), std::end(told.rule.leaves), -1);
        const std::string label = "k=" + std::to_string(k);
        check_walk(label, selector, random.floats(5 * 9, -2, 2), apart(random, 5, 200), 200, 99);
        check_walk(label + ", drawn", selector, random.floats(5 * 9, -2, 2), apart(random, 5, 200),
                   200, 99, &told);
    }
}

TEST(DflashSelect, equal_logits_are_candidates_by_token_and_equal_scores_go_to_the_first) {
    Random random("dflash select ties");
    DflashSelector selector = random_selector(random, Types(quant::Type::f32), 4, 2, 6, 3);
    selector.predecessor = zero_weight(6, 2);
    const std::vector<float> logits = {1, 5, 0, 5, 5, 5};
    for (TestBackend& backend : backends()) {
        const auto got =
            run_select(backend, "ties", selector, random.floats(4, -1, 1), logits, 6, 0);
        EXPECT_EQ(got.candidates, (std::vector<std::int32_t>{1, 3, 4}));
        EXPECT_EQ(got.path, std::vector<std::int32_t>{1});
        EXPECT_FLOAT_EQ(got.confidence[0], 1.0f / 3);
    }
}

TEST(DflashSelect, a_logit_that_is_not_finite_ends_the_walk) {
    Random random("dflash select finite");
    const DflashSelector selector = random_selector(random, Types(quant::Type::bf16), 8, 4, 20, 3);
    const auto hidden = random.floats(4 * 8, -2, 2);
    const auto logits = apart(random, 4, 20);
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
        for (std::int64_t row = 0; row < 4; ++row) {
            auto broken = logits;
            broken[row * 20 + 11] = bad;
            check_walk("row " + std::to_string(row), selector, hidden, broken, 20, 2);
        }
    }
}

TEST(DflashSelect, a_rule_draws_from_the_candidates) {
    Random random("dflash select draws");
    DflashSelector selector = random_selector(random, Types(quant::Type::bf16), 9, 5, 100, 12);
    for (std::int64_t r = 0; r < 24; ++r) selector.token_of_row.push_back(r * 4 + 3);
    const std::vector<op::DrawRule> rules = {
        {.temperature = 1, .seed = 7, .position = 30},
        {.temperature = 2, .top_k = 5, .seed = 8},
        {.temperature = 1.5, .top_p = 0.8, .seed = 9, .position = 4},
        {.temperature = 3, .lowest = -1, .top_p = 0.9, .top_k = 8, .seed = 10},
        {.temperature = 1, .repeat_penalty = 1.5, .presence_penalty = 0.5, .seed = 11},
        {.temperature = 0, .repeat_penalty = 1.2, .frequency_penalty = 2}};
    for (std::size_t at = 0; at < rules.size(); ++at) {
        DflashRule told{rules[at], {{3, 1}, {11, 2}, {12, 4}, {95, 1}}};
        told.rule.penalized = std::ssize(told.penalized);
        std::fill(std::begin(told.rule.leaves), std::end(told.rule.leaves), -1);
        // One of those before the walk, then its own first pick.
        told.rule.leaves[1] = 11;
        told.rule.leaves[3] = -2;
        check_walk("rule " + std::to_string(at), selector, random.floats(7 * 9, -2, 2),
                   apart(random, 7, 24), 24, 99, &told);
    }
}

}  // namespace
}  // namespace strata::test
