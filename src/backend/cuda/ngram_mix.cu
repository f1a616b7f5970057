// Bounded by reading key; once a step, in one layer.
#include "backend/cuda/either_route.h"
#include "backend/cuda/history.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

// The values that pass from the gates to the convolution.
struct Mixed {
    MatrixView<float> gated;   // [T, S*D]: the keys, until Y replaces them
    MatrixView<float> value;   // [T, D]
    MatrixView<float> normed;  // [T, S*D]: X
};

// s = K . Q / sqrt(D); sigmoid(sign(s) sqrt(max(|s|, 1e-6)))
__device__ float gate_of(float product, std::int64_t width) {
    constexpr float kSmallest = 1e-6f;
    const float score = product / sqrtf(static_cast<float>(width));
    if (score == 0.0f) return 0.5f;
    const float root = sqrtf(fmaxf(fabsf(score), kSmallest));
    return sigmoid(score < 0.0f ? -root : root);
}

// Writes the block before into one stream, turns its keys into Y, and writes X: block (stream,
// row). A column is one thread's throughout.
__global__ void __launch_bounds__(kNormThreadsMax) gate_streams(op::NgramMix args, Mixed mixed) {
    follow_earlier_kernels();
    __shared__ float sums[kNormThreadsMax / kWarp];
    const std::int64_t t = blockIdx.y;
    const std::int64_t s = blockIdx.x;
    const std::int64_t width = args.value.rows;
    const std::int64_t at = s * width;
    float* stream = args.residual.row(t) + at;
    float* key = mixed.gated.row(t) + at;
    const bool folds = !args.block_out.empty();
    const float inject = folds ? args.block_inject.row(t)[s] : 0.0f;
    float stream_squares = 0.0f;
    float key_squares = 0.0f;
    for (std::int64_t c = threadIdx.x; c < width; c += blockDim.x) {
        float value = stream[c];
        if (folds) {
            value += inject * args.block_out.row(t)[c];
            stream[c] = value;
        }
        stream_squares = __fmaf_rn(value, value, stream_squares);
        key_squares = __fmaf_rn(key[c], key[c], key_squares);
    }
    const float query_scale = inverse_rms(sum_of_block(stream_squares, sums), width, args.epsilon);
    const float key_scale = inverse_rms(sum_of_block(key_squares, sums), width, args.epsilon);
    float product = 0.0f;
    for (std::int64_t c = threadIdx.x; c < width; c += blockDim.x) {
        product = __fmaf_rn(key[c] * key_scale * args.norm_key[at + c],
                            stream[c] * query_scale * args.norm_query[at + c], product);
    }
    const float share = gate_of(sum_of_block(product, sums), width);
    float squares = 0.0f;
    for (std::int64_t c = threadIdx.x; c < width; c += blockDim.x) {
        const float y = share * mixed.value.row(t)[c];
        key[c] = y;
        squares = __fmaf_rn(y, y, squares);
    }
    const float scale = inverse_rms(sum_of_block(squares, sums), width, args.epsilon);
    for (std::int64_t c = threadIdx.x; c < width; c += blockDim.x) {
        mixed.normed.row(t)[at + c] = key[c] * scale * args.norm_conv[at + c];
    }
}

// residual += Y + silu(the convolution over X).
struct Convolve {
    op::NgramMix args;
    Mixed mixed;

    __device__ void operator()(std::int64_t i) const {
        const std::int64_t all = mixed.normed.cols;
        const std::int64_t t = i / all;
        const std::int64_t channel = i % all;
        const std::int64_t kept = std::int64_t{args.kernel - 1} * args.dilation;
        float sum = 0.0f;
        for (int j = 0; j < args.kernel; ++j) {
            const std::int64_t row = t - std::int64_t{args.dilation} * (args.kernel - 1 - j);
            const float* from =
                row >= 0 ? mixed.normed.row(row) : args.history_from + (kept + row) * all;
            sum = __fmaf_rn(args.conv[channel * args.kernel + j], from[channel], sum);
        }
        args.residual.data[i] += mixed.gated.data[i] + silu(sum);
    }
};

void check(const op::NgramMix& args) {
    const std::int64_t all = args.residual.cols;
    const std::int64_t rows = args.residual.rows;
    STRATA_CHECK(args.e.rows == rows && args.streams > 0 && all % args.streams == 0);
    STRATA_CHECK(args.key.rows == all && args.value.rows == all / args.streams);
    STRATA_CHECK(args.kernel >= 1 && args.dilation >= 1);
    STRATA_CHECK(args.trace.empty() || (args.trace.rows == rows && args.trace.cols == all));
}

}  // namespace

void ngram_mix_by(Projector project_rows, const op::NgramMix& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const std::int64_t rows = args.residual.rows;
    const std::int64_t all = args.residual.cols;
    if (rows == 0) return;
    const Mixed mixed{own.matrix(rows, all), own.matrix(rows, args.value.rows),
                      args.trace.empty() ? own.matrix(rows, all) : args.trace};
    const Product products[] = {{args.key, mixed.gated}, {args.value, mixed.value}};
    project_rows(own, args.e, std::span<const Product>(products));
    launch_dependent(own,
                     {dim3(static_cast<unsigned>(args.streams), static_cast<unsigned>(rows)),
                      norm_threads(args.value.rows)},
                     gate_streams, args, mixed);
    for_each(own, rows * all, Convolve{args, mixed});
    const std::int64_t kept = std::int64_t{args.kernel - 1} * args.dilation;
    advance_history(own, args.history_from, {args.history_to, kept, all}, mixed.normed, rows);
}

void ngram_mix(const op::NgramMix& args, device::Queue& queue) {
    ngram_mix_by(project_window, args, queue);
}

}  // namespace strata::cuda
