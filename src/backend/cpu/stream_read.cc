// Bounded by reading down and up, together a third of what a token reads; the rest is one pass over
// the residual.
#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/project.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/streams.h"
#include "base/check.h"

namespace strata::cpu {
namespace {

// Values of x that a thread makes at a time.
constexpr std::int64_t kTile = 256;

void check(const op::StreamRead& args) {
    const std::int64_t all = args.streams * args.x.cols;
    STRATA_CHECK(args.residual.rows == args.x.rows && args.residual.cols == all);
    STRATA_CHECK(has_shape(args.down, args.down.rows, all));
    STRATA_CHECK(has_shape(args.up, all, args.down.rows));
    STRATA_CHECK(args.inject_weight.empty() || has_shape(args.inject_weight, args.streams, all));
    STRATA_CHECK(args.inject_weight.empty() ||
                 (args.inject.rows == args.x.rows && args.inject.cols == args.streams));
    STRATA_CHECK(
        block_fits(args.block_out, args.block_inject, args.x.rows, args.streams, args.x.cols));
}

// normed[t, s] = norm of residual[t, s], after the block before is written into it.
void norm_streams(const op::StreamRead& args, Queue& queue, MatrixView<float> normed) {
    const std::int64_t width = args.x.cols;
    queue.split(args.x.rows * args.streams, 4 * width,
                [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t i = begin; i < end; ++i) {
                        const std::int64_t t = i / args.streams;
                        const std::int64_t s = i % args.streams;
                        float* stream = args.residual.data + i * width;
                        if (!args.block_out.empty()) {
                            inject_stream(queue.instructions(), stream, args.block_inject.row(t)[s],
                                          args.block_out.row(t), width);
                        }
                        rms_norm(queue.instructions(), stream, args.norm + s * width, width,
                                 args.epsilon, normed.data + i * width);
                    }
                });
}

// x[begin .. end-1] of one row: the mean over the streams of sigmoid(gate[s]) * normed[s].
struct GatedMean {
    template <typename V>
    STRATA_INLINE static void run(const float* normed, const float* gate, int streams,
                                  std::int64_t width, std::int64_t begin, std::int64_t end,
                                  float* x) {
        const float share = 1.0f / static_cast<float>(streams);
#pragma GCC ivdep
        for (std::int64_t i = begin; i < end; ++i) x[i] = sigmoid(gate[i]) * normed[i];
        for (int s = 1; s < streams; ++s) {
            const float* own_gate = gate + s * width;
            const float* own = normed + s * width;
#pragma GCC ivdep
            for (std::int64_t i = begin; i < end; ++i) x[i] += sigmoid(own_gate[i]) * own[i];
        }
#pragma GCC ivdep
        for (std::int64_t i = begin; i < end; ++i) x[i] *= share;
    }
};

void gated_mean(const op::StreamRead& args, Queue& queue, MatrixView<const float> normed,
                MatrixView<const float> gate) {
    const std::int64_t width = args.x.cols;
    const std::int64_t tiles = (width + kTile - 1) / kTile;
    queue.split(args.x.rows * tiles, kTile * kExpCost * args.streams,
                [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t i = begin; i < end; ++i) {
                        const std::int64_t t = i / tiles;
                        const std::int64_t first = i % tiles * kTile;
                        run_kernel<GatedMean>(queue.instructions(), normed.row(t), gate.row(t),
                                              args.streams, width, first,
                                              std::min(first + kTile, width), args.x.row(t));
                    }
                });
}

void read_rows(const op::StreamRead& args, Queue& queue) {
    const std::int64_t rows = args.x.rows;
    const auto streams = static_cast<float>(args.streams);
    const MatrixView<float> normed = queue.matrix(rows, args.residual.cols);
    const MatrixView<float> low = queue.matrix(rows, args.down.rows);
    const MatrixView<float> gate = queue.matrix(rows, args.residual.cols);
    norm_streams(args, queue, normed);
    if (args.inject_weight.empty()) {
        project(queue, normed, {{args.down, low}});
    } else {
        project(queue, normed, {{args.down, low}, {args.inject_weight, args.inject}});
        for (std::int64_t i = 0; i < args.inject.size(); ++i) {
            args.inject.data[i] = 2.0f * sigmoid(args.inject.data[i] / streams);
        }
    }
    silu_row(queue.instructions(), low.data, low.size(), 1.0f / streams);
    project(queue, low, {{args.up, gate}});
    gated_mean(args, queue, normed, gate);
}

op::StreamRead rows_of(op::StreamRead args, std::int64_t begin, std::int64_t end) {
    const std::int64_t count = end - begin;
    args.residual = args.residual.rows_from(begin, count);
    args.x = args.x.rows_from(begin, count);
    if (!args.block_out.empty()) {
        args.block_out = args.block_out.rows_from(begin, count);
        args.block_inject = args.block_inject.rows_from(begin, count);
    }
    if (!args.inject.empty()) args.inject = args.inject.rows_from(begin, count);
    return args;
}

}  // namespace

void stream_read(const op::StreamRead& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const std::int64_t block = divided_rows(own, args.x.rows, {&args.down, &args.up});
    if (block == 0 || own.observer() != nullptr) return read_rows(args, own);
    own.by_rows(args.x.rows, block, [&](Queue& one, std::int64_t begin, std::int64_t end) {
        read_rows(rows_of(args, begin, end), one);
    });
}

}  // namespace strata::cpu
