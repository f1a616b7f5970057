// Bounded by reading the selected keys and values. A unit is one row and some of the query heads
// that share a key head, so that a cache row is converted once for all of them; where rows are few,
// the heads are divided further to give every thread work.
#include <algorithm>
#include <cmath>

#include "backend/cpu/cache.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/product.h"
#include "backend/cpu/sparse.h"

namespace strata::cpu {
namespace {

// Cache rows that are converted together.
constexpr std::int64_t kCacheTile = 16;

struct Unit {
    std::int64_t t = 0;
    std::int64_t kv_head = 0;
    std::int64_t head = 0;  // first query head
    std::int64_t heads = 0;
};

// How T rows of H heads are divided into units.
class Division {
  public:
    Division(const op::AttentionShape& shape, std::int64_t rows, int threads)
        : rows_(rows), kv_heads_(shape.kv_heads), group_(shape.heads / shape.kv_heads) {
        const std::int64_t wanted = 2 * std::int64_t{threads};
        const std::int64_t parts =
            std::clamp((wanted - 1) / (rows * kv_heads_) + 1, std::int64_t{1}, group_);
        heads_ = (group_ + parts - 1) / parts;
        parts_ = (group_ + heads_ - 1) / heads_;
    }

    std::int64_t count() const { return rows_ * kv_heads_ * parts_; }
    std::int64_t heads() const { return heads_; }

    // Late rows, which see more, alternate with early ones, so that equal parts are equal work.
    Unit at(std::int64_t i) const {
        const std::int64_t turn = i / (kv_heads_ * parts_);
        const std::int64_t within = i % (kv_heads_ * parts_);
        const std::int64_t kv_head = within / parts_;
        const std::int64_t first = within % parts_ * heads_;
        return {.t = turn % 2 == 0 ? turn / 2 : rows_ - 1 - turn / 2,
                .kv_head = kv_head,
                .head = kv_head * group_ + first,
                .heads = std::min(heads_, group_ - first)};
    }

  private:
    std::int64_t rows_;
    std::int64_t kv_heads_;
    std::int64_t group_;
    std::int64_t heads_ = 0;  // of a unit, at most
    std::int64_t parts_ = 0;  // units a row and key head
};

// A call's caches as F32, where many rows attend to few cached ones; else empty.
struct WideCaches {
    MatrixView<float> keys;  // [context, G*d]
    MatrixView<float> values;

    bool empty() const { return keys.empty(); }
};

// What a thread works with.
struct Scratch {
    Instructions instructions = Instructions::scalar;
    std::int32_t* positions = nullptr;  // [most]
    float* scores = nullptr;            // [heads of a unit, most]
    float* cached = nullptr;            // [kCacheTile, d]
    float* inverse_sums = nullptr;      // [heads of a unit]
    std::int64_t most = 0;              // rows that one row attends to
};

// The positions that row t attends to, ascending; their count.
std::int64_t list_positions(const op::SparseAttention& args, const Selection& selection,
                            std::int64_t t, std::int32_t* positions) {
    const std::int64_t p = args.first + t;
    const std::int64_t ratio = args.shape.ratio;
    std::int64_t count = 0;
    std::int64_t tail = 0;
    if (!selection.dense(t)) {
        const std::int32_t* blocks = selection.blocks.row(t - selection.first_row);
        for (std::int64_t b = 0; b < selection.blocks.cols; ++b) {
            for (std::int64_t r = 0; r < ratio; ++r) {
                positions[count++] = static_cast<std::int32_t>(blocks[b] * ratio + r);
            }
        }
        tail = visible_blocks(p, args.shape.ratio) * ratio;
    }
    for (std::int64_t i = tail; i <= p; ++i) positions[count++] = static_cast<std::int32_t>(i);
    return count;
}

op::CacheRow cache_row(const op::SparseAttention& args) {
    return {args.cache.type, args.shape.kv_heads, args.shape.head_dim};
}

// Calls body(first, count) with cached rows first .. first+count-1 of the list in scratch.cached.
template <typename Body>
void for_tiles(const op::SparseAttention& args, const void* cache, std::int64_t g, std::int64_t n,
               const Scratch& scratch, const Body& body) {
    const op::CacheRow row = cache_row(args);
    for (std::int64_t first = 0; first < n; first += kCacheTile) {
        const std::int64_t count = std::min(kCacheTile, n - first);
        load_heads(scratch.instructions, row, cache, scratch.positions + first, count, g,
                   scratch.cached);
        body(first, count);
    }
}

// scratch.scores = the products of the unit's queries with the keys of the n listed positions.
void score(const op::SparseAttention& args, const Rows& queries, const Unit& unit, std::int64_t n,
           const WideCaches& wide, const Scratch& scratch) {
    const std::int64_t d = args.shape.head_dim;
    if (!wide.empty()) {
        const Rows keys{.data = wide.keys.data + unit.kv_head * d,
                        .stride = wide.keys.cols,
                        .count = n,
                        .at = scratch.positions};
        products(queries, keys, d, scratch.scores, scratch.most, 1);
        return;
    }
    for_tiles(args, args.cache.keys, unit.kv_head, n, scratch,
              [&](std::int64_t first, std::int64_t count) {
                  const Rows keys{.data = scratch.cached, .stride = d, .count = count};
                  products(queries, keys, d, scratch.scores + first, scratch.most, 1);
              });
}

// out[h] += the values of the n listed positions, weighted with scratch.scores of head h.
void add_values(const op::SparseAttention& args, const Unit& unit, std::int64_t n,
                const WideCaches& wide, const Scratch& scratch, float* out) {
    const std::int64_t d = args.shape.head_dim;
    const auto add = [&](std::int64_t first, const Rows& values) {
        add_rows(Weights{scratch.scores + first, scratch.most, unit.heads}, values, d, out, d);
    };
    if (!wide.empty()) {
        add(0, {.data = wide.values.data + unit.kv_head * d,
                .stride = wide.values.cols,
                .count = n,
                .at = scratch.positions});
        return;
    }
    for_tiles(args, args.cache.values, unit.kv_head, n, scratch,
              [&](std::int64_t first, std::int64_t count) {
                  add(first, {.data = scratch.cached, .stride = d, .count = count});
              });
}

void attend_unit(const op::SparseAttention& args, const SparseQueries& queries,
                 const Selection& selection, const Unit& unit, const WideCaches& wide,
                 const Scratch& scratch, MatrixView<float> out) {
    const std::int64_t d = args.shape.head_dim;
    const std::int64_t n = list_positions(args, selection, unit.t, scratch.positions);
    const float* query = queries.query.row(unit.t) + unit.head * 2 * d;
    score(args, {.data = query, .stride = 2 * d, .count = unit.heads}, unit, n, wide, scratch);
    float* heads_out = out.row(unit.t) + unit.head * d;
    std::fill_n(heads_out, unit.heads * d, 0.0f);
    const float scale = 1.0f / std::sqrt(static_cast<float>(d));
    for (std::int64_t h = 0; h < unit.heads; ++h) {
        scratch.inverse_sums[h] =
            softmax_weights(scratch.instructions, scratch.scores + h * scratch.most, n, scale);
    }
    add_values(args, unit, n, wide, scratch, heads_out);
    for (std::int64_t h = 0; h < unit.heads; ++h) {
        const float* gate = query + h * 2 * d + d;
        gate_row(scratch.instructions, heads_out + h * d, gate, d, scratch.inverse_sums[h]);
    }
}

// Both caches up to the call's last row, where that is worth it and they are small.
WideCaches widen_caches(const op::SparseAttention& args, Queue& queue) {
    constexpr std::int64_t kValuesMost = std::int64_t{1} << 20;  // of each
    const op::CacheRow row = cache_row(args);
    const std::int64_t context = args.first + args.x.rows;
    const std::int64_t width = row.heads * row.dim;
    if (!queue.divides_rows(args.x.rows) || context * width > kValuesMost) return {};
    const WideCaches wide{queue.matrix(context, width), queue.matrix(context, width)};
    queue.split(context, 2 * width, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t p = begin; p < end; ++p) {
            for (std::int64_t g = 0; g < row.heads; ++g) {
                load_head(queue.instructions(), row, args.cache.keys, p, g,
                          wide.keys.row(p) + g * row.dim);
                load_head(queue.instructions(), row, args.cache.values, p, g,
                          wide.values.row(p) + g * row.dim);
            }
        }
    });
    return wide;
}

}  // namespace

void attend(const op::SparseAttention& args, Queue& queue, const SparseQueries& queries,
            const Selection& selection, MatrixView<float> out) {
    const op::AttentionShape& shape = args.shape;
    if (args.x.rows == 0) return;
    const Division division(shape, args.x.rows, queue.threads());
    const std::int64_t sparse = (shape.blocks_kept + std::int64_t{1}) * shape.ratio - 1;
    const std::int64_t most = std::min(args.first + args.x.rows, sparse);
    const std::int64_t heads = division.heads();
    const auto threads = std::int64_t{queue.threads()};
    auto* positions = queue.take<std::int32_t>(threads * most);
    const MatrixView<float> scores = queue.matrix(threads, heads * most);
    const MatrixView<float> cached = queue.matrix(threads, kCacheTile * shape.head_dim);
    const MatrixView<float> sums = queue.matrix(threads, heads);
    const WideCaches wide = widen_caches(args, queue);
    queue.split(division.count(), heads * most * shape.head_dim,
                [&](std::int64_t begin, std::int64_t end, int thread) {
                    const Scratch scratch{.instructions = queue.instructions(),
                                          .positions = positions + thread * most,
                                          .scores = scores.row(thread),
                                          .cached = cached.row(thread),
                                          .inverse_sums = sums.row(thread),
                                          .most = most};
                    for (std::int64_t i = begin; i < end; ++i) {
                        attend_unit(args, queries, selection, division.at(i), wide, scratch, out);
                    }
                });
}

}  // namespace strata::cpu
