// Bounded by reading the weights of all layers once. What comes between two products is one launch:
// the end of a sublayer with the norm that the next begins with, or what its own products share.
#include "backend/cuda/dflash.h"
#include "backend/cuda/draft_rows.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/stored.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

// What one call passes from step to step; rows are the block's.
struct Block {
    op::DflashBlock args;
    MatrixView<float> hidden;  // h
    MatrixView<float> normed;  // a
    MatrixView<float> after;   // what the sublayer gives
    MatrixView<float> delta;
};

// h = the embeddings, `to` = their norm: a block a row.
template <typename Stored>
__global__ void __launch_bounds__(kNormThreadsMax)
    begin_rows(Block block, op::Gain norm, MatrixView<float> to) {
    follow_earlier_kernels();
    const std::int64_t i = blockIdx.x;
    const std::byte* row = block.args.table.row(block.args.tokens[i]);
    norm_row(
        block.hidden.cols, block.args.epsilon, norm, reinterpret_cast<float*>(shared_bytes()),
        [&](std::int64_t c) { return block.hidden.row(i)[c] = Stored::at(row, c); },
        [&](std::int64_t c, float value) { to.row(i)[c] = value; });
}

// to[j] += the value of row i of C(side, x) in channel `first` + j * `step`, as far as there are
// channels: what a tap reads for all of them is on its way at once.
template <int kCount>
__device__ void add_convolved(const Block& block, const float* base, int side,
                              MatrixView<const float> x, std::int64_t i, int first, int step,
                              float (&to)[kCount]) {
    const op::DflashBlock& args = block.args;
    const auto cols = static_cast<int>(x.cols);
    const int groups = cols / args.group;
    for (int t = 0; t < args.taps && t <= i; ++t) {
        const int tap = side * args.taps + t;
        const float* own = base + tap * cols;
        const float* delta = block.delta.row(i) + tap * groups;
        const float* from = x.row(i - t);
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
            const int channel = first + j * step;
            if (channel >= cols) continue;
            to[j] = __fmaf_rn(own[channel] + delta[channel / args.group], from[channel], to[j]);
        }
    }
}

// Rows u = C(0, a).
struct Entered {
    Block block;
    const float* base;

    __device__ void eight(std::int64_t row, int column, float (&to)[kPiece]) const {
        add_convolved(block, base, 0, block.normed, row, column, 1, to);
    }
};

constexpr int kHeld = 4;  // columns of a thread at a time, all of them in rows of usual widths

// h += C(1, after), and `to` = the norm that comes next: a block a row.
__global__ void __launch_bounds__(kNormThreadsMax)
    leave_rows(Block block, const float* base, op::Gain norm, MatrixView<float> to) {
    follow_earlier_kernels();
    __shared__ float sums[kNormThreadsMax / kWarp];
    auto* const held = reinterpret_cast<float*>(shared_bytes());
    const std::int64_t i = blockIdx.x;
    const auto cols = static_cast<int>(to.cols);
    const auto step = static_cast<int>(blockDim.x);
    float* hidden = block.hidden.row(i);
    float squares = 0.0f;
    for (int first = static_cast<int>(threadIdx.x); first < cols; first += kHeld * step) {
        float values[kHeld] = {};
        add_convolved(block, base, 1, block.after, i, first, step, values);
#pragma unroll
        for (int j = 0; j < kHeld; ++j) {
            const int c = first + j * step;
            if (c < cols) values[j] += hidden[c];
        }
#pragma unroll
        for (int j = 0; j < kHeld; ++j) {
            const int c = first + j * step;
            if (c < cols) held[c] = hidden[c] = values[j];
            squares = __fmaf_rn(values[j], values[j], squares);
        }
    }
    const float inverse = inverse_rms(sum_of_block(squares, sums), cols, block.args.epsilon);
#pragma unroll kHeld
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += step) {
        to.row(i)[c] = held[c] * inverse * norm[c];
    }
}

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

// The products of a sublayer's first rows.
void enter(Queue& queue, const Block& block, const op::DflashConv& conv,
           std::span<const Product> products) {
    project(queue, block.normed, conv.projection, block.delta);
    const DraftRows rows = make_draft_rows(queue, block.normed.rows, block.normed.cols, products);
    fill_draft_rows(queue, Entered{block, conv.base}, rows);
    project_draft(queue, rows, products);
}

// The product of its last ones.
void finish(Queue& queue, const Block& block, const InputRows& x, const op::Weight& weight) {
    const Product product{weight, block.after};
    const DraftRows rows = make_draft_rows(queue, block.after.rows, x.cols, {&product, 1});
    fill_draft_rows(queue, x, rows);
    project_draft(queue, rows, {&product, 1});
}

void leave(Queue& queue, const Block& block, const op::DflashConv& conv, op::Gain norm,
           MatrixView<float> to) {
    launch_dependent(queue,
                     {dim3(static_cast<unsigned>(to.rows)), norm_threads(to.cols),
                      static_cast<std::size_t>(to.cols) * sizeof(float)},
                     leave_rows, block, conv.base, norm, to);
}

// Memory that all layers use in turn.
struct Scratch {
    DflashRows rows;
    MatrixView<float> gate;
    MatrixView<float> up;
};

void attend(Queue& queue, const Block& block, const op::DflashLayer& layer,
            const Scratch& scratch) {
    const DflashRows& rows = scratch.rows;
    const Product products[] = {
        {layer.query, rows.query}, {layer.key, rows.key}, {layer.value, rows.value}};
    enter(queue, block, layer.attention_conv, products);
    const std::int64_t cols = layer.query.rows;
    const Product out{layer.out, block.after};
    const DraftRows attended = make_draft_rows(queue, block.hidden.rows, cols, {&out, 1});
    dflash_attend(queue, block.args, layer, rows, attended);
    project_draft(queue, attended, {&out, 1});
}

void feed(Queue& queue, const Block& block, const op::DflashLayer& layer, const Scratch& scratch) {
    const MatrixView<float> gate{scratch.gate.data, block.hidden.rows, layer.gate.rows};
    const MatrixView<float> up{scratch.up.data, block.hidden.rows, layer.gate.rows};
    const Product products[] = {{layer.gate, gate}, {layer.up, up}};
    enter(queue, block, layer.feed_conv, products);
    finish(queue, block,
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
    const Block block{.args = args,
                      .hidden = own.matrix(rows, width),
                      .normed = own.matrix(rows, width),
                      .after = own.matrix(rows, width),
                      .delta = own.matrix(rows, 2 * args.taps * (width / args.group))};
    const Scratch scratch = make_scratch(own, args);
    const std::int64_t count = args.layers.size;
    with_stored(args.table.type, [&](auto stored) {
        launch_dependent(own,
                         {dim3(static_cast<unsigned>(rows)), norm_threads(width),
                          static_cast<std::size_t>(width) * sizeof(float)},
                         begin_rows<decltype(stored)>, block,
                         count > 0 ? args.layers[0].attention_norm : args.norm,
                         count > 0 ? block.normed : args.hidden);
    });
    for (std::int64_t l = 0; l < count; ++l) {
        const op::DflashLayer& layer = args.layers[l];
        const bool last = l + 1 == count;
        attend(own, block, layer, scratch);
        leave(own, block, layer.attention_conv, layer.feed_norm, block.normed);
        feed(own, block, layer, scratch);
        leave(own, block, layer.feed_conv, last ? args.norm : args.layers[l + 1].attention_norm,
              last ? args.hidden : block.normed);
    }
}

}  // namespace strata::cuda
