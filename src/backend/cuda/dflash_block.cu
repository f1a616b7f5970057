// Bounded by reading the weights of all layers once. What comes between two products is one launch
// or two, of many blocks that ask early for what they read.
#include "backend/cuda/dflash.h"
#include "backend/cuda/draft_rows.cuh"
#include "backend/cuda/kernels.h"
#include "base/check.h"

namespace strata::cuda {
namespace {

void check_conv(const op::DflashBlock& args, const op::DflashConv& conv) {
    const std::int64_t groups = args.hidden.cols / args.group;
    STRATA_CHECK(conv.base != nullptr && conv.projection.rows == 2 * args.taps * groups);
}

void check(const op::DflashBlock& args) {
    const op::DflashShape& shape = args.shape;
    const std::int64_t width = args.hidden.cols;
    STRATA_CHECK(args.hidden.rows == args.tokens.size && args.first >= 0);
    STRATA_CHECK(args.table.cols == width);
    STRATA_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0);
    STRATA_CHECK(2 * shape.rotary_pairs <= shape.head_dim);
    STRATA_CHECK(args.taps > 0 && args.group > 0 && width % args.group == 0);
    for (std::int64_t l = 0; l < args.layers.size; ++l) {
        const op::DflashLayer& layer = args.layers[l];
        check_conv(args, layer.attention_conv);
        check_conv(args, layer.feed_conv);
        STRATA_CHECK(layer.query.rows == std::int64_t{shape.heads} * shape.head_dim);
        STRATA_CHECK(layer.key.rows == std::int64_t{shape.kv_heads} * shape.head_dim);
        STRATA_CHECK(layer.cells.slots > 0 && layer.window >= 0);
    }
}

// The product of the last rows of a sublayer.
void finish(Queue& queue, const DflashSteps& steps, const InputRows& x, const op::Weight& weight) {
    const Product product{weight, steps.after};
    const DraftRows rows = make_draft_rows(queue, steps.after.rows, x.cols, {&product, 1});
    fill_draft_rows(queue, x, rows, {&product, 1});
    project_draft(queue, rows, {&product, 1});
}

// Memory that all layers use in turn.
struct Scratch {
    DflashRows rows;
    MatrixView<float> gate;
    MatrixView<float> up;
};

void attend(Queue& queue, const DflashSteps& steps, const op::DflashLayer& layer,
            const Scratch& scratch) {
    const DflashRows& rows = scratch.rows;
    const Product products[] = {
        {layer.query, rows.query}, {layer.key, rows.key}, {layer.value, rows.value}};
    dflash_enter(queue, steps, layer.attention_norm, layer.attention_conv, products);
    const std::int64_t cols = layer.query.rows;
    const Product out{layer.out, steps.after};
    const DraftRows attended = make_draft_rows(queue, steps.hidden.rows, cols, {&out, 1});
    dflash_attend(queue, steps.args, layer, rows, attended);
    project_draft(queue, attended, {&out, 1});
}

void feed(Queue& queue, const DflashSteps& steps, const op::DflashLayer& layer,
          const Scratch& scratch) {
    const MatrixView<float> gate{scratch.gate.data, steps.hidden.rows, layer.gate.rows};
    const MatrixView<float> up{scratch.up.data, steps.hidden.rows, layer.gate.rows};
    const Product products[] = {{layer.gate, gate}, {layer.up, up}};
    dflash_enter(queue, steps, layer.feed_norm, layer.feed_conv, products);
    finish(queue, steps,
           {.data = gate.data,
            .up = up.data,
            .stride = gate.cols,
            .cols = static_cast<int>(gate.cols)},
           layer.down);
}

Scratch make_scratch(Queue& queue, const op::DflashBlock& args) {
    const std::int64_t rows = args.tokens.size;
    const std::int64_t query = std::int64_t{args.shape.heads} * args.shape.head_dim;
    const std::int64_t kv = std::int64_t{args.shape.kv_heads} * args.shape.head_dim;
    std::int64_t feed = 0;
    for (std::int64_t l = 0; l < args.layers.size; ++l) {
        feed = std::max(feed, args.layers[l].gate.rows);
    }
    return {.rows = {queue.matrix(rows, query), queue.matrix(rows, kv), queue.matrix(rows, kv)},
            .gate = queue.matrix(rows, feed),
            .up = queue.matrix(rows, feed)};
}

}  // namespace

void dflash_block(const op::DflashBlock& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const std::int64_t rows = args.tokens.size;
    const std::int64_t width = args.hidden.cols;
    if (rows == 0) return;
    const std::int64_t pieces = (width + kDflashSquares - 1) / kDflashSquares;
    const DflashSteps steps{.args = args,
                            .hidden = own.matrix(rows, width),
                            .squares = own.matrix(rows, pieces),
                            .after = own.matrix(rows, width),
                            .delta = own.matrix(rows, 2 * args.taps * (width / args.group))};
    const Scratch scratch = make_scratch(own, args);
    dflash_begin(own, steps);
    for (std::int64_t l = 0; l < args.layers.size; ++l) {
        const op::DflashLayer& layer = args.layers[l];
        attend(own, steps, layer, scratch);
        dflash_leave(own, steps, layer.attention_conv);
        feed(own, steps, layer, scratch);
        dflash_leave(own, steps, layer.feed_conv);
    }
    dflash_norm(own, steps, args.norm, args.hidden);
}

}  // namespace strata::cuda
