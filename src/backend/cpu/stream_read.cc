// Bounded by reading down and up, together a third of what a token reads; the rest is one pass over
// the residual.
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/project.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/streams.h"
#include "base/check.h"

namespace strata::cpu {
namespace {

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
                            inject_stream(stream, args.block_inject.row(t)[s],
                                          args.block_out.row(t), width);
                        }
                        rms_norm(stream, args.norm + s * width, width, args.epsilon,
                                 normed.data + i * width);
                    }
                });
}

// x[t] = mean over the streams of sigmoid(gate[t, s]) * normed[t, s]
void gated_mean(const op::StreamRead& args, Queue& queue, MatrixView<const float> normed,
                MatrixView<const float> gate) {
    const std::int64_t width = args.x.cols;
    const float share = 1.0f / static_cast<float>(args.streams);
    queue.split(args.x.size(), kExpCost * args.streams,
                [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t i = begin; i < end; ++i) {
                        const std::int64_t at = i / width * normed.cols + i % width;
                        float sum = 0.0f;
                        for (int s = 0; s < args.streams; ++s) {
                            const std::int64_t from = at + s * width;
                            sum += sigmoid(gate.data[from]) * normed.data[from];
                        }
                        args.x.data[i] = share * sum;
                    }
                });
}

}  // namespace

void stream_read(const op::StreamRead& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const std::int64_t rows = args.x.rows;
    const auto streams = static_cast<float>(args.streams);
    const MatrixView<float> normed = own.matrix(rows, args.residual.cols);
    const MatrixView<float> low = own.matrix(rows, args.down.rows);
    const MatrixView<float> gate = own.matrix(rows, args.residual.cols);
    norm_streams(args, own, normed);
    if (args.inject_weight.empty()) {
        project(own, normed, {{args.down, low}});
    } else {
        project(own, normed, {{args.down, low}, {args.inject_weight, args.inject}});
        for (std::int64_t i = 0; i < args.inject.size(); ++i) {
            args.inject.data[i] = 2.0f * sigmoid(args.inject.data[i] / streams);
        }
    }
    for (std::int64_t i = 0; i < low.size(); ++i) low.data[i] = silu(low.data[i] / streams);
    project(own, low, {{args.up, gate}});
    gated_mean(args, own, normed, gate);
}

}  // namespace strata::cpu
