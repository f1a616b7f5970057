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

// Cells that are converted together.
constexpr std::int64_t kCellTile = 64;

// out[i][k] = value i of key k, of `count` keys `stride` values apart.
struct Turn {
    template <typename V>
    STRATA_INLINE static void run(const float* keys, std::int64_t stride, std::int64_t count,
                                  std::int64_t d, float* out) {
        std::int64_t k = 0;
        if constexpr (kVectorWidth<V> == kSide) {
            const std::int64_t wide = d / kSide * kSide;
            for (; k + kSide <= count; k += kSide) {
                const float* from = keys + k * stride;
                for (std::int64_t i = 0; i < wide; i += kSide) {
                    turn_square(from + i, stride, out + i * kCellTile + k);
                }
                turn_values(from, stride, kSide, wide, d, out + k);
            }
        }
        turn_values(keys + k * stride, stride, count - k, 0, d, out + k);
    }

    STRATA_INLINE static void turn_values(const float* from, std::int64_t stride,
                                          std::int64_t count, std::int64_t begin, std::int64_t end,
                                          float* to) {
        for (std::int64_t k = 0; k < count; ++k) {
            for (std::int64_t i = begin; i < end; ++i) to[i * kCellTile + k] = from[k * stride + i];
        }
    }

    static constexpr std::int64_t kSide = kVectorWidth<Float16>;

    // Rows i and i + 8 are interleaved: four times that, and a value's row and column have changed
    // places.
    STRATA_INLINE static void turn_square(const float* from, std::int64_t stride, float* to) {
        using Order = std::int32_t __attribute__((vector_size(64)));
        constexpr Order kLow = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
        constexpr Order kHigh = {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
        Float16 rows[kSide];
        Float16 next[kSide];
#pragma GCC unroll 16
        for (int k = 0; k < kSide; ++k) load_vector(from + k * stride, rows[k]);
#pragma GCC unroll 4
        for (int times = 0; times < 4; ++times) {
#pragma GCC unroll 8
            for (int k = 0; k < kSide / 2; ++k) {
                next[2 * k] = __builtin_shuffle(rows[k], rows[k + 8], kLow);
                next[2 * k + 1] = __builtin_shuffle(rows[k], rows[k + 8], kHigh);
            }
#pragma GCC unroll 16
            for (int k = 0; k < kSide; ++k) rows[k] = next[k];
        }
#pragma GCC unroll 16
        for (int k = 0; k < kSide; ++k) store_vector(rows[k], to + k * kCellTile);
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
    float* tile = nullptr;     // [queries of a unit, kCellTile]
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
        load_heads(call.instructions, row, cells, visible.slot + first, count, kv_head,
                   scratch.cells);
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

// Of the scratch's queries and any number of keys. Keys are turned: so each score is summed value
// after value, whatever else is computed with it, and no sum crosses lanes.
void score(const Call& call, const Rows& keys, std::int64_t queries, const Scratch& scratch,
           float* scores) {
    const std::int64_t d = call.head_dim();
    const Rows turned{.data = scratch.turned, .stride = kCellTile, .count = d};
    for (std::int64_t first = 0; first < keys.count; first += kCellTile) {
        const std::int64_t count = std::min(kCellTile, keys.count - first);
        run_kernel<Turn>(call.instructions, keys.row(first), keys.stride, count, d, scratch.turned);
        std::fill_n(scratch.tile, queries * kCellTile, 0.0f);
        add_rows(Weights{scratch.queries, d, queries}, turned, kCellTile, scratch.tile, kCellTile);
        for (std::int64_t q = 0; q < queries; ++q) {
            std::copy_n(scratch.tile + q * kCellTile, count, scores + q * scratch.most + first);
        }
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
    }
    float* sums = scratch.queries;  // which have been read
    std::fill_n(sums, count * d, 0.0f);
    for_tiles(call, call.layer.cells.values, call.rows.value, kv_head, scratch,
              [&](std::int64_t first, const Rows& values) {
                  const Weights weights{scratch.scores + first, scratch.most, count};
                  add_rows(weights, values, d, sums, d);
              });
    for (std::int64_t q = 0; q < count; ++q) {
        std::copy_n(sums + q * d, d, call.out.data + call.query_at(from + q, kv_head));
    }
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
    const MatrixView<float> tile = queue.matrix(queue.threads(), step * kCellTile);
    const MatrixView<float> scores = queue.matrix(queue.threads(), step * most);
    std::fill_n(turned.data, turned.size(), 0.0f);
    queue.split(kv_heads * parts, 2 * step * most * d,
                [&](std::int64_t begin, std::int64_t end, int thread) {
                    const Scratch scratch{own_queries.row(thread), cells.row(thread),
                                          turned.row(thread),      tile.row(thread),
                                          scores.row(thread),      most};
                    for (std::int64_t unit = begin; unit < end; ++unit) {
                        const std::int64_t from = unit % parts * step;
                        const std::int64_t count = std::min(step, queries - from);
                        if (count > 0) attend_unit(call, unit / parts, from, count, scratch);
                    }
                });
}

}  // namespace strata::cpu
