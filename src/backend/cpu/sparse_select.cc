// Bounded by reading the block keys: once for every group of rows that are scored together.
#include <algorithm>
#include <bit>

#include "backend/cpu/product.h"
#include "backend/cpu/sparse.h"
#include "backend/cpu/vector.h"

namespace strata::cpu {
namespace {

// Rows whose scores are held at a time, where threads share them.
constexpr std::int64_t kGroup = 32;

// The most blocks for which each thread holds the scores of rows of its own.
constexpr std::int64_t kBlocksOfOne = 4096;

// Blocks that are scored together.
constexpr std::int64_t kBlockTile = 32;

// scores[b] = sum over j < heads of max(0, product[j][b]), b < count <= kBlockTile
struct SumPositive {
    template <typename V>
    STRATA_INLINE static void run(const float* product, std::int64_t heads, std::int64_t count,
                                  float* scores) {
        float sum[kBlockTile] = {};
        for (std::int64_t j = 0; j < heads; ++j) {
            const float* row = product + j * kBlockTile;
            for (std::int64_t b = 0; b < count; ++b) {
                sum[b] += row[b] > 0.0f ? row[b] : 0.0f;  // NaN counts as 0
            }
        }
        for (std::int64_t b = 0; b < count; ++b) scores[b] = sum[b];
    }
};

// scores[b] for begin <= b < end; `product` holds kBlockTile * HI values.
void score(Instructions instructions, const op::SparseAttention& args, const float* index_query,
           std::int64_t begin, std::int64_t end, float* product, float* scores) {
    const std::int64_t di = args.shape.index_dim;
    const std::int64_t heads = args.shape.index_heads;
    const Rows queries{.data = index_query, .stride = di, .count = heads};
    for (std::int64_t first = begin; first < end; first += kBlockTile) {
        const std::int64_t count = std::min(kBlockTile, end - first);
        const Rows keys{.data = args.cache.block_keys + first * di, .stride = di, .count = count};
        products(queries, keys, di, product, kBlockTile, 1);
        run_kernel<SumPositive>(instructions, product, heads, count, scores + first);
    }
}

// The bits of the kept-th largest of `count` scores, none below 0: such floats are ordered as their
// bits are, which are found from the highest on. Counts beat a partial sort: they vectorize.
struct KeptLeast {
    template <typename V>
    STRATA_INLINE static void run(const float* scores, std::int64_t count, std::int64_t kept,
                                  std::int32_t* bits) {
        std::int32_t least = 0;
        for (std::int32_t bit = 1 << 30; bit > 0; bit >>= 1) {
            const std::int32_t tried = least | bit;
            std::int32_t above = 0;
            for (std::int64_t b = 0; b < count; ++b) {
                above += std::bit_cast<std::int32_t>(scores[b]) >= tried ? 1 : 0;
            }
            if (above >= kept) least = tried;
        }
        *bits = least;
    }
};

// The `kept` blocks of largest score, ascending; of equal ones the lower.
void keep_best(Instructions instructions, const float* scores, std::int64_t count,
               std::int64_t kept, std::int32_t* blocks) {
    if (kept == 0) return;
    std::int32_t bits = 0;
    run_kernel<KeptLeast>(instructions, scores, count, kept, &bits);
    const auto least = std::bit_cast<float>(bits);
    std::int64_t equal =
        kept - std::count_if(scores, scores + count, [&](float s) { return s > least; });
    for (std::int64_t b = 0; b < count; ++b) {
        const bool best = scores[b] > least;
        if (best || (scores[b] == least && equal > 0)) {
            *blocks++ = static_cast<std::int32_t>(b);
            if (!best) --equal;
        }
    }
}

// What a call needs to select with.
struct Selecting {
    const op::SparseAttention& args;
    const SparseQueries& queries;
    const Selection& selection;

    std::int64_t visible(std::int64_t row) const {
        return visible_blocks(args.first + selection.first_row + row, args.shape.ratio);
    }
};

// The blocks of rows from .. from+count-1 of those that select, scored together.
void select_group(const Selecting& at, Queue& queue, std::int64_t from, std::int64_t count,
                  MatrixView<float> scores) {
    const std::int64_t most = at.visible(from + count - 1);
    const MatrixView<const float> index_query = at.queries.index_query;
    const MatrixView<float> product =
        queue.matrix(queue.threads(), kBlockTile * at.args.shape.index_heads);
    queue.split(most, count * index_query.cols,
                [&](std::int64_t begin, std::int64_t end, int thread) {
                    for (std::int64_t tile = begin; tile < end; tile += kBlockTile) {
                        const std::int64_t tile_end = std::min(tile + kBlockTile, end);
                        for (std::int64_t r = 0; r < count; ++r) {
                            score(queue.instructions(), at.args,
                                  index_query.row(at.selection.first_row + from + r), tile,
                                  std::min(tile_end, at.visible(from + r)), product.row(thread),
                                  scores.row(r));
                        }
                    }
                });
    queue.split(count, 8 * most, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t r = begin; r < end; ++r) {
            keep_best(queue.instructions(), scores.row(r), at.visible(from + r),
                      at.args.shape.blocks_kept, at.selection.blocks.row(from + r));
        }
    });
}

}  // namespace

Selection select_blocks(const op::SparseAttention& args, Queue& queue,
                        const SparseQueries& queries) {
    const int ratio = args.shape.ratio;
    const std::int64_t kept = args.shape.blocks_kept;
    const std::int64_t all = args.x.rows;
    // The first position that sees more than B blocks completes block B.
    const std::int64_t crowded = (kept + 1) * ratio - 1;
    Selection selection;
    selection.first_row = std::clamp(crowded - args.first, std::int64_t{0}, all);
    const std::int64_t chosen = all - selection.first_row;
    if (chosen == 0) return selection;

    selection.blocks = {queue.take<std::int32_t>(chosen * kept), chosen, kept};
    const Selecting at{args, queries, selection};
    const std::int64_t most = at.visible(chosen - 1);
    if (queue.divides_rows(chosen) && most <= kBlocksOfOne) {
        queue.by_rows(chosen, Queue::kBlockRows,
                      [&](Queue& one, std::int64_t begin, std::int64_t end) {
                          const std::int64_t count = end - begin;
                          select_group(at, one, begin, count, one.matrix(count, most));
                      });
        return selection;
    }
    const MatrixView<float> scores = queue.matrix(std::min(kGroup, chosen), most);
    for (std::int64_t from = 0; from < chosen; from += kGroup) {
        select_group(at, queue, from, std::min(kGroup, chosen - from), scores);
    }
    return selection;
}

}  // namespace strata::cpu
