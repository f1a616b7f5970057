// Bound by the tensor cores, and where few blocks are seen by what the scores take of memory.
#include "backend/cuda/multiply_rounded.cuh"
#include "backend/cuda/prompt_sparse.h"

namespace strata::cuda::prompt {
namespace {

// Index queries as a matrix: of eight rows of the sequence one head after another, eight each.
struct IndexQueries {
    RoundedRows rows;  // [count * HI]
    int heads = 0;

    template <int kCols>
    struct Tile {
        RowCopies<kCols> copies;
        __device__ Tile(const IndexQueries& queries, const TileJob& job)
            : copies(queries.rows, [&](int i) {
                  const int eight = (job.col + i) / 8;
                  const int t = eight / queries.heads * 8 + i % 8;
                  const int row = t * queries.heads + eight % queries.heads;
                  return row < queries.rows.rows ? row : -1;
              }) {}
        __device__ void bring(std::byte* tile, int step) const { copies.copy(tile, step); }
    };
};

// Tiles of blocks that some row of the tile sees.
struct SeenTiles {
    static constexpr bool kOftenPartial = false;
    int blocks = 0;
    std::int64_t first = 0;  // the position of the first row
    int count = 0;
    int heads = 0;
    int ratio = 0;

    __device__ bool find(TileJob& job, int tile_rows, int tile_cols) const {
        job = {static_cast<int>(blockIdx.x) * tile_rows, blocks,
               static_cast<int>(blockIdx.y) * tile_cols, 0};
        const int last = min(count, (job.col + tile_cols) / heads) - 1;
        return job.row < (first + last + 1) / ratio;
    }
};

// score = sum over heads of max(0, query . key); NaN counts as 0.
template <int kHeads>
struct StoreScores {
    float* scores;
    std::int64_t stride;
    int count;

    __device__ void operator()(std::int64_t block, int col, const float (&v)[4][2], int) const {
#pragma unroll
        for (int j = 0; j < 4; j += kHeads) {
            const int t = (col + 8 * j) / (8 * kHeads) * 8 + col % 8;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float score = 0.0f;
#pragma unroll
                for (int h = 0; h < kHeads; ++h) score += v[j + h][i] > 0.0f ? v[j + h][i] : 0.0f;
                if (t + i < count) scores[(t + i) * stride + block] = score;
            }
        }
    }
};

template <int kHeads>
void start(PromptInput& block_keys, const SparseRows& rows, std::int64_t first,
           std::int64_t count) {
    Queue& queue = block_keys.queue();
    const op::AttentionShape& shape = rows.args.shape;
    const RoundedRows keys = block_keys.split();
    const std::int64_t heads = count * shape.index_heads;
    const MatrixView<const float> queries{rows.index_query.row(first), heads, shape.index_dim};
    const SeenTiles plan{static_cast<int>(keys.rows), rows.args.first + first,
                         static_cast<int>(count), shape.index_heads, shape.ratio};
    start_tiles<128, 128>(
        queue, keys, IndexQueries{split_matrix(queue, queries), shape.index_heads},
        (count + 7) / 8 * 8 * shape.index_heads, plan, runs_warpgroups(queue, keys.rows),
        StoreScores<kHeads>{rows.scores, rows.args.cache.context / shape.ratio,
                            static_cast<int>(count)});
}

}  // namespace

bool scores_blocks(const op::AttentionShape& shape) {
    return shape.index_heads == 1 || shape.index_heads == 2 || shape.index_heads == 4;
}

void score_blocks(PromptInput& block_keys, const SparseRows& rows, std::int64_t first,
                  std::int64_t count) {
    STRATA_CHECK(scores_blocks(rows.args.shape));
    if (rows.args.shape.index_heads == 4) return start<4>(block_keys, rows, first, count);
    if (rows.args.shape.index_heads == 2) return start<2>(block_keys, rows, first, count);
    start<1>(block_keys, rows, first, count);
}

}  // namespace strata::cuda::prompt
