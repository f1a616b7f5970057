// Bounded by reading down and up, together a third of what a token reads. Weights in BF16 and Q8_0
// go the way of stream_read_tiles.cu on tensor cores; those that take their input as it is the
// fused way of stream_read_fused.cu elsewhere. For other blocks the steps are launches of their
// own, as products of any format are.
#include "backend/cuda/stream_read.h"

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/project.h"
#include "base/check.h"

namespace strata::cuda {
namespace {

// normed[t, s] = norm of residual[t, s], after the block before is written into it. A block a
// stream.
__global__ void __launch_bounds__(kNormThreadsMax)
    norm_streams(op::StreamRead args, MatrixView<float> normed) {
    follow_earlier_kernels();
    const std::int64_t t = blockIdx.y;
    const std::int64_t s = blockIdx.x;
    const std::int64_t width = args.x.cols;
    float* stream = args.residual.row(t) + s * width;
    float* to = normed.row(t) + s * width;
    const bool folds = !args.block_out.empty();
    const float inject = folds ? args.block_inject.row(t)[s] : 0.0f;
    norm_row(
        width, args.epsilon, args.norm + s * width, reinterpret_cast<float*>(shared_bytes()),
        [&](std::int64_t c) {
            if (!folds) return stream[c];
            const float value = stream[c] + inject * args.block_out.row(t)[c];
            stream[c] = value;
            return value;
        },
        [&](std::int64_t c, float value) { to[c] = value; });
}

struct Activate {
    MatrixView<float> low;
    MatrixView<float> inject;  // may be empty
    float share;               // 1 / S

    __device__ void operator()(std::int64_t i) const {
        if (i < low.size()) {
            low.data[i] = silu(low.data[i] * share);
        } else {
            float& value = inject.data[i - low.size()];
            value = 2.0f * sigmoid(value * share);
        }
    }
};

// x = the mean over the streams of sigmoid(gate) * normed.
struct GatedMean {
    MatrixView<const float> normed;
    MatrixView<const float> gate;
    MatrixView<float> x;
    int streams;

    __device__ void operator()(std::int64_t i) const {
        const std::int64_t at = i / x.cols * normed.cols + i % x.cols;
        float sum = 0.0f;
        for (int s = 0; s < streams; ++s) {
            const std::int64_t from = at + s * x.cols;
            sum = __fmaf_rn(sigmoid(gate.data[from]), normed.data[from], sum);
        }
        x.data[i] = sum / static_cast<float>(streams);
    }
};

void check(const op::StreamRead& args) {
    const std::int64_t all = args.streams * args.x.cols;
    STRATA_CHECK(args.residual.rows == args.x.rows && args.residual.cols == all);
    STRATA_CHECK(args.down.cols == all);
    STRATA_CHECK(args.up.rows == all && args.up.cols == args.down.rows);
    if (!args.inject_weight.empty()) {
        STRATA_CHECK(args.inject_weight.rows == args.streams && args.inject_weight.cols == all);
        STRATA_CHECK(args.inject.rows == args.x.rows && args.inject.cols == args.streams);
    }
    if (!args.block_out.empty()) {
        STRATA_CHECK(args.block_out.rows == args.x.rows && args.block_out.cols == args.x.cols);
        STRATA_CHECK(args.block_inject.rows == args.x.rows);
        STRATA_CHECK(args.block_inject.cols == args.streams);
    }
}

void stream_read_stepwise(const op::StreamRead& args, Queue& queue) {
    const std::int64_t rows = args.x.rows;
    const MatrixView<float> normed = queue.matrix(rows, args.residual.cols);
    const MatrixView<float> low = queue.matrix(rows, args.down.rows);
    const MatrixView<float> gate = queue.matrix(rows, args.residual.cols);
    launch_dependent(
        queue,
        {dim3(static_cast<unsigned>(args.streams), static_cast<unsigned>(rows)),
         norm_threads(args.x.cols), static_cast<std::size_t>(args.x.cols) * sizeof(float)},
        norm_streams, args, normed);
    const Product products[] = {{args.down, low}, {args.inject_weight, args.inject}};
    const bool injects = !args.inject_weight.empty();
    project(queue, normed, {products, injects ? 2u : 1u});
    const MatrixView<float> inject = injects ? args.inject : MatrixView<float>();
    for_each(queue, low.size() + inject.size(),
             Activate{low, inject, 1.0f / static_cast<float>(args.streams)});
    project(queue, low, args.up, gate);
    for_each(queue, args.x.size(), GatedMean{normed, gate, args.x, args.streams});
}

}  // namespace

void stream_read(const op::StreamRead& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    if (args.x.rows == 0) return;
    if (reads_streams_by_tiles(args, own)) {
        stream_read_tiles(args, own);
    } else if (reads_streams_fused(args)) {
        stream_read_fused(args, own);
    } else {
        stream_read_stepwise(args, own);
    }
}

}  // namespace strata::cuda
