// Bounded by reading the weights at few rows, by multiply-adds when a prompt is read.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/cache.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/project.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/rope.h"
#include "base/check.h"

namespace strata::cpu {
namespace {

// 2^31: positions are kept in 32 bits.
constexpr std::int64_t kPositionsMax = std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1;

void check(const op::DflashInject& args) {
    const std::int64_t width = args.fuse.rows;
    const op::DflashShape& shape = args.shape;
    STRATA_CHECK(has_shape(args.fuse, width, args.features.cols) && !args.layers.empty());
    STRATA_CHECK(shape.kv_heads > 0 && 2 * shape.rotary_pairs <= shape.head_dim);
    STRATA_CHECK(args.first_at == nullptr);  // nothing is recorded here
    STRATA_CHECK(args.first >= 0 && args.first + args.features.rows <= kPositionsMax);
    STRATA_CHECK(args.replaced.empty() || args.replaced.size == args.features.rows);
    const std::int64_t kv = std::int64_t{shape.kv_heads} * shape.head_dim;
    for (std::int64_t l = 0; l < args.layers.size; ++l) {
        const op::DflashContextLayer& layer = args.layers[l];
        STRATA_CHECK(has_shape(layer.key, kv, width) && has_shape(layer.value, kv, width));
        STRATA_CHECK(layer.cells.slots > 0);
    }
}

// Copies a row with 0 for what is not finite; how many those were.
std::int32_t copy_finite(const float* from, std::int64_t n, float* to) {
    std::int32_t replaced = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const bool finite = std::isfinite(from[i]);
        to[i] = finite ? from[i] : 0.0f;
        replaced += finite ? 0 : 1;
    }
    return replaced;
}

// c of every row.
MatrixView<float> fuse(const op::DflashInject& args, Queue& queue) {
    const std::int64_t rows = args.features.rows;
    const std::int64_t width = args.fuse.rows;
    const MatrixView<float> finite = queue.matrix(rows, args.features.cols);
    queue.split(rows, finite.cols, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            const std::int32_t count =
                copy_finite(args.features.row(t), finite.cols, finite.row(t));
            if (!args.replaced.empty()) args.replaced[t] = count;
        }
    });
    const MatrixView<float> fused = queue.matrix(rows, width);
    project(queue, finite, {{args.fuse, fused}});
    queue.split(rows, 3 * width, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            rms_norm(queue.instructions(), fused.row(t), args.norm, width, args.epsilon,
                     fused.row(t));
        }
    });
    return fused;
}

// The cosines, then the sines, of each row's position.
MatrixView<float> make_turns(const op::DflashInject& args, Queue& queue) {
    const std::int64_t pairs = args.shape.rotary_pairs;
    const MatrixView<float> turns = queue.matrix(args.features.rows, 2 * pairs);
    queue.split(turns.rows, 2 * pairs * kExpCost, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            set_turns(args.first + t, args.inverse_frequency, pairs, turns.row(t),
                      turns.row(t) + pairs);
        }
    });
    return turns;
}

// Puts the last rows that fit into a layer's cells.
void fill_cells(const op::DflashInject& args, const op::DflashContextLayer& layer,
                MatrixView<const float> turns, MatrixView<float> key, MatrixView<const float> value,
                Queue& queue) {
    const op::DflashCells& cells = layer.cells;
    const std::int64_t d = args.shape.head_dim;
    const op::CacheRow stored{cells.type, args.shape.kv_heads, d};
    const std::int64_t pairs = args.shape.rotary_pairs;
    const std::int64_t skipped = std::max(std::int64_t{0}, key.rows - cells.slots);
    queue.split(key.rows - skipped, 8 * key.cols, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = skipped + begin; t < skipped + end; ++t) {
            for (std::int64_t at = 0; at < key.cols; at += d) {
                float* head = key.row(t) + at;
                rms_norm(queue.instructions(), head, layer.key_norm, d, args.epsilon, head);
                turn(head, turns.row(t), turns.row(t) + pairs, pairs);
            }
            const std::int64_t slot = (args.first + t) % cells.slots;
            store_row(stored, key.row(t), cells.keys, slot);
            store_row(stored, value.row(t), cells.values, slot);
            cells.position[slot] = static_cast<std::int32_t>(args.first + t);
        }
    });
}

}  // namespace

void dflash_inject(const op::DflashInject& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const std::int64_t rows = args.features.rows;
    const std::int64_t kv = std::int64_t{args.shape.kv_heads} * args.shape.head_dim;
    const MatrixView<float> fused = fuse(args, own);
    const MatrixView<float> turns = make_turns(args, own);
    const MatrixView<float> key = own.matrix(rows, kv);
    const MatrixView<float> value = own.matrix(rows, kv);
    for (std::int64_t l = 0; l < args.layers.size; ++l) {
        const op::DflashContextLayer& layer = args.layers[l];
        project(own, fused, {{layer.key, key}, {layer.value, value}});
        fill_cells(args, layer, turns, key, value, own);
    }
}

}  // namespace strata::cpu
