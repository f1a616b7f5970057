// Bounded by converting cells and by multiply-adds over them. The queries of all rows that share a
// key head meet a cell together; where key heads are few, they are divided to give every thread
// work. What a query gets depends on neither.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cache.h"
#include "backend/cpu/dflash.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/product.h"
#include "backend/cpu/vector.h"

namespace strata::cpu {
namespace {

// Cells that are converted together, and the lanes that their scores are summed in.
constexpr std::int64_t kCellTile = 16;
static_assert(kCellTile == kLanes);

// Scores of queries and a tile of keys, [d, kCellTile]: a lane a key, so that no sum crosses lanes.
// Each is summed value after value, whatever else is computed with it.
struct TileScores {
    template <typename V>
    STRATA_INLINE static void run(const float* queries, std::int64_t count, std::int64_t d,
                                  const float* keys, std::int64_t keys_count, float* out,
                                  std::int64_t step) {
        std::int64_t q = 0;
        for (; q + 4 <= count; q += 4) {
            some<V, 4>(queries + q * d, d, keys, keys_count, out + q * step, step);
        }
        for (; q < count; ++q) {
            some<V, 1>(queries + q * d, d, keys, keys_count, out + q * step, step);
        }
    }

    template <typename V, int Q>
    STRATA_INLINE static void some(const float* queries, std::int64_t d, const float* keys,
                                   std::int64_t keys_count, float* out, std::int64_t step) {
        constexpr int kParts = kLanes / kVectorWidth<V>;
        V sum[Q][kParts] = {};
        for (std::int64_t i = 0; i < d; ++i) {
#pragma GCC unroll 4
            for (int part = 0; part < kParts; ++part) {
                V key;
                load_vector(keys + i * kLanes + part * kVectorWidth<V>, key);
#pragma GCC unroll 4
                for (int q = 0; q < Q; ++q) sum[q][part] += queries[q * d + i] * key;
            }
        }
        for (int q = 0; q < Q; ++q) {
            std::memcpy(out + q * step, sum[q],
                        static_cast<std::size_t>(keys_count) * sizeof(float));
        }
    }
};

// What all rows see of the cells, by position; each row sees an end piece of it.
struct Visible {
    const std::int32_t* slot = nullptr;
    const std::int32_t* position = nullptr;
    std::int64_t count = 0;
};

// One thread's scratch memory.
struct Scratch {
    float* queries = nullptr;  // [queries of a unit, d]
    float* cells = nullptr;    // [kCellTile, d]
    float* turned = nullptr;   // [d, kCellTile]
    float* scores = nullptr;   // [queries of a unit, most]
    std::int64_t most = 0;     // visible cells and block rows
};

struct Call {
    const op::DflashBlock& args;
    const op::DflashLayer& layer;
    const DflashRows& rows;
    Instructions instructions;
    Visible visible;
    std::int64_t group = 0;  // query heads of a key head
    MatrixView<float> out;

    std::int64_t head_dim() const { return args.shape.head_dim; }
    std::int64_t block_rows() const { return rows.query.rows; }
    // Queries of a key head are numbered row after row.
    std::int64_t query_at(std::int64_t q, std::int64_t kv_head) const {
        return (q / group) * rows.query.cols + (kv_head * group + q % group) * head_dim();
    }
};

// The first position that the row at `p` sees.
std::int64_t first_seen(const op::DflashLayer& layer, std::int64_t p) {
    return layer.window == 0 ? 0 : std::max(std::int64_t{0}, p - layer.window + 1);
}

Visible list_visible(const op::DflashBlock& args, const op::DflashLayer& layer, Queue& queue) {
    const op::DflashCells& cells = layer.cells;
    const std::int64_t first = std::max(first_seen(layer, args.first),
                                        std::max(args.first - cells.slots, std::int64_t{0}));
    const std::int64_t most = args.first - first;
    auto* slot = queue.take<std::int32_t>(most);
    auto* position = queue.take<std::int32_t>(most);
    std::int64_t count = 0;
    for (std::int64_t p = first; p < args.first; ++p) {
        const std::int64_t at = p % cells.slots;
        if (cells.position[at] != p) continue;
        slot[count] = static_cast<std::int32_t>(at);
        position[count++] = static_cast<std::int32_t>(p);
    }
    return {slot, position, count};
}

// Calls body(first, rows) with visible cells from the first-th on, then with the block's own rows.
template <typename Body>
void for_tiles(const Call& call, const void* cells, MatrixView<const float> own,
               std::int64_t kv_head, const Scratch& scratch, const Body& body) {
    const std::int64_t d = call.head_dim();
    const op::CacheRow row{call.layer.cells.type, call.args.shape.kv_heads, d};
    const Visible& visible = call.visible;
    for (std::int64_t first = 0; first < visible.count; first += kCellTile) {
        const std::int64_t count = std::min(kCellTile, visible.count - first);
        for (std::int64_t i = 0; i < count; ++i) {
            load_head(call.instructions, row, cells, visible.slot[first + i], kv_head,
                      scratch.cells + i * d);
        }
        body(first, Rows{.data = scratch.cells, .stride = d, .count = count});
    }
    body(visible.count,
         Rows{.data = own.data + kv_head * d, .stride = own.cols, .count = own.rows});
}

// The scores of row i as weights, those of what it does not see as 0.
void weigh(const Call& call, std::int64_t i, float* scores) {
    const std::int64_t p = call.args.first + i;
    const std::int64_t cells = call.visible.count;
    const std::int64_t rows = call.block_rows();
    const std::int32_t* positions = call.visible.position;
    const std::int64_t hidden =
        std::lower_bound(positions, positions + cells, first_seen(call.layer, p)) - positions;
    const std::int64_t window = call.layer.window == 0 ? rows : call.layer.window;
    const std::int64_t low = std::max(std::int64_t{0}, i - window + 1);
    const std::int64_t high = std::min(rows, i + window);
    // What is seen is one piece, or the cells end before the window begins within the block.
    const std::int64_t begin = hidden < cells ? hidden : cells + low;
    std::fill_n(scores, begin, 0.0f);
    std::fill(scores + cells + high, scores + cells + rows, 0.0f);
    const float scale = 1.0f / std::sqrt(static_cast<float>(call.head_dim()));
    const std::int64_t count = cells + high - begin;
    const float inverse = softmax_weights(call.instructions, scores + begin, count, scale);
    for (std::int64_t j = 0; j < count; ++j) scores[begin + j] *= inverse;
}

// Of the scratch's queries and at most some tiles of keys.
void score(const Call& call, const Rows& keys, std::int64_t queries, const Scratch& scratch,
           float* scores) {
    const std::int64_t d = call.head_dim();
    for (std::int64_t first = 0; first < keys.count; first += kCellTile) {
        const std::int64_t count = std::min(kCellTile, keys.count - first);
        for (std::int64_t k = 0; k < count; ++k) {
            const float* key = keys.row(first + k);
            for (std::int64_t i = 0; i < d; ++i) scratch.turned[i * kCellTile + k] = key[i];
        }
        run_kernel<TileScores>(call.instructions, scratch.queries, queries, d, scratch.turned,
                               count, scores + first, scratch.most);
    }
}

// Queries from .. from+count-1 of a key head.
void attend_unit(const Call& call, std::int64_t kv_head, std::int64_t from, std::int64_t count,
                 const Scratch& scratch) {
    const std::int64_t d = call.head_dim();
    for (std::int64_t q = 0; q < count; ++q) {
        std::copy_n(call.rows.query.data + call.query_at(from + q, kv_head), d,
                    scratch.queries + q * d);
    }
    for_tiles(call, call.layer.cells.keys, call.rows.key, kv_head, scratch,
              [&](std::int64_t first, const Rows& keys) {
                  score(call, keys, count, scratch, scratch.scores + first);
              });
    for (std::int64_t q = 0; q < count; ++q) {
        weigh(call, (from + q) / call.group, scratch.scores + q * scratch.most);
        std::fill_n(call.out.data + call.query_at(from + q, kv_head), d, 0.0f);
    }
    for_tiles(call, call.layer.cells.values, call.rows.value, kv_head, scratch,
              [&](std::int64_t first, const Rows& values) {
                  for (std::int64_t q = 0; q < count; ++q) {
                      add_rows(scratch.scores + q * scratch.most + first, values, d,
                               call.out.data + call.query_at(from + q, kv_head));
                  }
              });
}

}  // namespace

void dflash_attend(const op::DflashBlock& args, const op::DflashLayer& layer, Queue& queue,
                   const DflashRows& rows, MatrixView<float> out) {
    const std::int64_t kv_heads = args.shape.kv_heads;
    const Call call{.args = args,
                    .layer = layer,
                    .rows = rows,
                    .instructions = queue.instructions(),
                    .visible = list_visible(args, layer, queue),
                    .group = args.shape.heads / kv_heads,
                    .out = out};
    const std::int64_t d = call.head_dim();
    const std::int64_t most = call.visible.count + call.block_rows();
    const std::int64_t queries = call.block_rows() * call.group;
    const std::int64_t wanted = 2 * std::int64_t{queue.threads()};
    const std::int64_t parts = std::clamp((wanted - 1) / kv_heads + 1, std::int64_t{1}, queries);
    const std::int64_t step = (queries + parts - 1) / parts;
    const MatrixView<float> own_queries = queue.matrix(queue.threads(), step * d);
    const MatrixView<float> cells = queue.matrix(queue.threads(), kCellTile * d);
    const MatrixView<float> turned = queue.matrix(queue.threads(), kCellTile * d);
    const MatrixView<float> scores = queue.matrix(queue.threads(), step * most);
    std::fill_n(turned.data, turned.size(), 0.0f);
    queue.split(kv_heads * parts, 2 * step * most * d,
                [&](std::int64_t begin, std::int64_t end, int thread) {
                    const Scratch scratch{own_queries.row(thread), cells.row(thread),
                                          turned.row(thread), scores.row(thread), most};
                    for (std::int64_t unit = begin; unit < end; ++unit) {
                        const std::int64_t from = unit % parts * step;
                        const std::int64_t count = std::min(step, queries - from);
                        if (count > 0) attend_unit(call, unit / parts, from, count, scratch);
                    }
                });
}

}  // namespace strata::cpu
