// Bounded by reading the weights of all layers once.
#include <algorithm>

#include "backend/cpu/dflash.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/project.h"
#include "backend/cpu/rope.h"
#include "backend/cpu/vector.h"
#include "base/check.h"

namespace strata::cpu {
namespace {

// What one call passes from step to step; rows are the block's.
struct Block {
    const op::DflashBlock& args;
    Queue& queue;
    MatrixView<float> hidden;  // h
    MatrixView<float> normed;  // a
    MatrixView<float> before;  // u
    MatrixView<float> after;   // what the sublayer gives
    MatrixView<float> delta;
    MatrixView<float> turns;  // cosines, then sines, of each row's position

    std::int64_t rows() const { return hidden.rows; }
    std::int64_t width() const { return hidden.cols; }
};

void check_conv(const op::DflashBlock& args, const op::DflashConv& conv) {
    const std::int64_t groups = args.hidden.cols / args.group;
    STRATA_CHECK(conv.base != nullptr);
    STRATA_CHECK(has_shape(conv.projection, 2 * args.taps * groups, args.hidden.cols));
}

void check(const op::DflashBlock& args) {
    const op::DflashShape& shape = args.shape;
    const std::int64_t width = args.hidden.cols;
    const std::int64_t kv = std::int64_t{shape.kv_heads} * shape.head_dim;
    const std::int64_t query = std::int64_t{shape.heads} * shape.head_dim;
    STRATA_CHECK(args.first_at == nullptr);  // nothing is recorded here
    STRATA_CHECK(args.hidden.rows == args.tokens.size && args.first >= 0);
    STRATA_CHECK(has_shape(args.table, args.table.rows, width));
    STRATA_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0);
    STRATA_CHECK(2 * shape.rotary_pairs <= shape.head_dim);
    STRATA_CHECK(args.taps > 0 && args.group > 0 && width % args.group == 0);
    for (std::int64_t l = 0; l < args.layers.size; ++l) {
        const op::DflashLayer& layer = args.layers[l];
        check_conv(args, layer.attention_conv);
        check_conv(args, layer.feed_conv);
        STRATA_CHECK(has_shape(layer.query, query, width) && has_shape(layer.out, width, query));
        STRATA_CHECK(has_shape(layer.key, kv, width) && has_shape(layer.value, kv, width));
        STRATA_CHECK(has_shape(layer.gate, layer.gate.rows, width));
        STRATA_CHECK(has_shape(layer.up, layer.gate.rows, width));
        STRATA_CHECK(has_shape(layer.down, width, layer.gate.rows));
        STRATA_CHECK(layer.cells.slots > 0 && layer.window >= 0);
    }
}

// y += (base + delta of its group) * x, of whole groups.
struct AddTap {
    template <typename V>
    STRATA_INLINE static void run(const float* base, const float* delta, const float* x,
                                  std::int64_t group, std::int64_t width, float* y) {
        for (std::int64_t at = 0; at < width; at += group, ++delta) {
            for (std::int64_t ch = at; ch < at + group; ++ch) y[ch] += (base[ch] + *delta) * x[ch];
        }
    }
};

// y[i] of C(side, x).
void convolve_row(const Block& block, const op::DflashConv& conv, int side,
                  MatrixView<const float> x, std::int64_t i, float* y) {
    const std::int64_t width = block.width();
    const std::int64_t groups = width / block.args.group;
    std::fill_n(y, width, 0.0f);
    for (std::int64_t t = 0; t < std::min(std::int64_t{block.args.taps}, i + 1); ++t) {
        const std::int64_t tap = side * block.args.taps + t;
        const float* delta = block.delta.row(i) + tap * groups;
        run_kernel<AddTap>(block.queue.instructions(), conv.base + tap * width, delta, x.row(i - t),
                           std::int64_t{block.args.group}, width, y);
    }
}

// a, delta and u of a sublayer.
void enter(const Block& block, op::Gain norm, const op::DflashConv& conv) {
    const std::int64_t width = block.width();
    block.queue.split(block.rows(), 3 * width, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
            rms_norm(block.queue.instructions(), block.hidden.row(i), norm, width,
                     block.args.epsilon, block.normed.row(i));
        }
    });
    project(block.queue, block.normed, {{conv.projection, block.delta}});
    const std::int64_t cost = block.args.taps * 2 * width;
    block.queue.split(block.rows(), cost, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
            convolve_row(block, conv, 0, block.normed, i, block.before.row(i));
        }
    });
}

// h += C(1, after).
void leave(const Block& block, const op::DflashConv& conv) {
    const std::int64_t width = block.width();
    const std::int64_t cost = block.args.taps * 2 * width;
    block.queue.split(block.rows(), cost, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
            float* post = block.before.row(i);
            convolve_row(block, conv, 1, block.after, i, post);
            for (std::int64_t ch = 0; ch < width; ++ch) block.hidden.row(i)[ch] += post[ch];
        }
    });
}

void norm_and_turn(const Block& block, op::Gain gain, const float* turns, float* x,
                   std::int64_t width) {
    const std::int64_t d = block.args.shape.head_dim;
    const std::int64_t pairs = block.args.shape.rotary_pairs;
    for (std::int64_t at = 0; at < width; at += d) {
        rms_norm(block.queue.instructions(), x + at, gain, d, block.args.epsilon, x + at);
        turn(x + at, turns, turns + pairs, pairs);
    }
}

void attend(const Block& block, const op::DflashLayer& layer) {
    Queue& queue = block.queue;
    const DflashRows rows{queue.matrix(block.rows(), layer.query.rows),
                          queue.matrix(block.rows(), layer.key.rows),
                          queue.matrix(block.rows(), layer.key.rows)};
    project(queue, block.before,
            {{layer.query, rows.query}, {layer.key, rows.key}, {layer.value, rows.value}});
    queue.split(block.rows(), 4 * rows.query.cols, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
            const float* turns = block.turns.row(i);
            norm_and_turn(block, layer.query_norm, turns, rows.query.row(i), rows.query.cols);
            norm_and_turn(block, layer.key_norm, turns, rows.key.row(i), rows.key.cols);
        }
    });
    const MatrixView<float> attended = queue.matrix(block.rows(), layer.query.rows);
    dflash_attend(block.args, layer, queue, rows, attended);
    project(queue, attended, {{layer.out, block.after}});
}

void feed(const Block& block, const op::DflashLayer& layer) {
    Queue& queue = block.queue;
    const MatrixView<float> gate = queue.matrix(block.rows(), layer.gate.rows);
    const MatrixView<float> up = queue.matrix(block.rows(), layer.gate.rows);
    project(queue, block.before, {{layer.gate, gate}, {layer.up, up}});
    queue.split(gate.size(), kExpCost, [&](std::int64_t begin, std::int64_t end, int) {
        silu_product(queue.instructions(), gate.data + begin, up.data + begin, end - begin);
    });
    project(queue, gate, {{layer.down, block.after}});
}

}  // namespace

void dflash_block(const op::DflashBlock& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const std::int64_t rows = args.tokens.size;
    const std::int64_t width = args.hidden.cols;
    if (rows == 0) return;
    const Block block{.args = args,
                      .queue = own,
                      .hidden = own.matrix(rows, width),
                      .normed = own.matrix(rows, width),
                      .before = own.matrix(rows, width),
                      .after = own.matrix(rows, width),
                      .delta = own.matrix(rows, 2 * args.taps * (width / args.group)),
                      .turns = own.matrix(rows, 2 * std::int64_t{args.shape.rotary_pairs})};
    for (std::int64_t i = 0; i < rows; ++i) {
        decode_row(args.table, args.tokens[i], block.hidden.row(i));
        float* turns = block.turns.row(i);
        set_turns(args.first + i, args.inverse_frequency, args.shape.rotary_pairs, turns,
                  turns + args.shape.rotary_pairs);
    }
    for (std::int64_t l = 0; l < args.layers.size; ++l) {
        const op::DflashLayer& layer = args.layers[l];
        enter(block, layer.attention_norm, layer.attention_conv);
        attend(block, layer);
        leave(block, layer.attention_conv);
        enter(block, layer.feed_norm, layer.feed_conv);
        feed(block, layer);
        leave(block, layer.feed_conv);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
        rms_norm(own.instructions(), block.hidden.row(i), args.norm, width, args.epsilon,
                 args.hidden.row(i));
    }
}

}  // namespace strata::cpu
