// op/stream_read.h for prompts, in three launches: one pass over the residual (write-back, norms,
// inject), and the two products, whose ends make what comes after them. Bound by the memory that
// the residual and the normed rows take: 13 MB of traffic per hundred rows at 4 x 2560.
#include "backend/cuda/kernels.h"
#include "backend/cuda/multiply.cuh"
#include "backend/cuda/prompt.h"

namespace strata::cuda::prompt {
namespace {

constexpr int kThreads = 256;
constexpr int kStreamsMax = 4;  // those that the lanes of a product's tile hold together

struct Normed {
    RoundedRows rows;           // [T, S*D]
    MatrixView<float> inverse;  // [T, S]: 1 / rms
    RoundedRows inject_weight;  // [S, S*D]; no data: none
    float inject_factor = 1;
};

// A block a row: folds what the block before wrote, then the norms of all streams and the injects.
__global__ void __launch_bounds__(kThreads) norm_streams(op::StreamRead args, Normed out) {
    __shared__ float sums[kThreads / kWarp];
    auto* held = reinterpret_cast<float*>(shared_bytes());
    const std::int64_t t = blockIdx.x;
    const std::int64_t width = args.x.cols;
    float* residual = args.residual.row(t);
    float inverse[kStreamsMax] = {};
#pragma unroll
    for (int s = 0; s < kStreamsMax; ++s) {
        if (s >= args.streams) break;
        const float share = args.block_out.empty() ? 0.0f : args.block_inject.row(t)[s];
        float squares = 0.0f;
        for (std::int64_t c = threadIdx.x; c < width; c += kThreads) {
            float value = residual[s * width + c];
            if (!args.block_out.empty()) {
                value += share * args.block_out.row(t)[c];
                residual[s * width + c] = value;
            }
            held[s * width + c] = value;
            squares = __fmaf_rn(value, value, squares);
        }
        const float mean = block_sum<kThreads>(squares, sums) / static_cast<float>(width);
        inverse[s] = 1.0f / sqrtf(mean + args.epsilon);
        if (threadIdx.x == 0) out.inverse.row(t)[s] = inverse[s];
    }
    // Pairs of columns: what a thread stores and multiplies at once.
    float inject[kStreamsMax] = {};
    const std::int64_t all = args.streams * width;
    for (std::int64_t c = 2 * threadIdx.x; c < out.rows.stride; c += 2 * kThreads) {
        float v[2];
        for (int i = 0; i < 2; ++i) {
            const std::int64_t at = c + i;
            float scale = inverse[0];
#pragma unroll
            for (int s = 1; s < kStreamsMax; ++s) scale = at >= s * width ? inverse[s] : scale;
            v[i] = at < all ? held[at] * scale * args.norm[at] : 0.0f;
        }
        const std::uint32_t pair = bf16_pair(v[0], v[1]);
        *reinterpret_cast<std::uint32_t*>(out.rows.row(t) + c) = pair;
        if (out.inject_weight.data == nullptr) continue;
#pragma unroll
        for (int s = 0; s < kStreamsMax; ++s) {
            if (s >= args.streams) break;
            const auto weight =
                *reinterpret_cast<const std::uint32_t*>(out.inject_weight.row(s) + c);
            inject[s] = detail::add_products<bfloat_to_float>(pair, weight, inject[s]);
        }
    }
    if (out.inject_weight.data == nullptr) return;
#pragma unroll
    for (int s = 0; s < kStreamsMax; ++s) {
        if (s >= args.streams) break;
        const float sum = block_sum<kThreads>(inject[s], sums) * out.inject_factor;
        if (threadIdx.x == 0) {
            args.inject.row(t)[s] = 2.0f * sigmoid(sum / static_cast<float>(args.streams));
        }
    }
}

// l = silu(sum / S), rounded.
struct StoreLow {
    RoundedRows out;
    std::int64_t cols = 0;
    float factor = 1;
    float streams = 1;

    __device__ void operator()(std::int64_t row, int col, const float (&v)[4][2], int) const {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int at = col + 8 * j;
            if (at >= out.stride) continue;
            float low[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                low[i] = at + i < cols ? silu(v[j][i] * factor / streams) : 0.0f;
            }
            *reinterpret_cast<std::uint32_t*>(out.row(row) + at) = bf16_pair(low[0], low[1]);
        }
    }
};

// Columns c and c + 1 of a row of streams of `width`; c is even within a stream, and the second is
// not used where the stream has ended.
__device__ float2 two(const float* row, std::int64_t c, std::int64_t width) {
    if (width % 2 == 0) return *reinterpret_cast<const float2*>(row + c);
    return make_float2(row[c], c % width + 1 < width ? row[c + 1] : 0.0f);
}

// x from the gates of all streams, which a lane has side by side.
template <int kStreams>
struct StoreMixed {
    op::StreamRead args;
    MatrixView<const float> inverse;

    __device__ void operator()(std::int64_t row, int col, const float (&v)[4][2], int) const {
        const std::int64_t width = args.x.cols;
        const float* residual = args.residual.row(row);
#pragma unroll
        for (int j = 0; j < 4; j += kStreams) {
            const std::int64_t c = (col + 8 * j) / (8 * kStreams) * 8 + col % 8;
            if (c >= width) continue;
            float sum[2] = {};
#pragma unroll
            for (int s = 0; s < kStreams; ++s) {
                const float inverse_rms = inverse.row(row)[s];
                const float2 r = two(residual, s * width + c, width);
                const float2 gain = two(args.norm, s * width + c, width);
                sum[0] = __fmaf_rn(sigmoid(v[j + s][0] * args.up.factor),
                                   r.x * inverse_rms * gain.x, sum[0]);
                sum[1] = __fmaf_rn(sigmoid(v[j + s][1] * args.up.factor),
                                   r.y * inverse_rms * gain.y, sum[1]);
            }
            constexpr float kShare = 1.0f / static_cast<float>(kStreams);
            float* x = args.x.row(row) + c;
            if (width % 2 == 0) {
                *reinterpret_cast<float2*>(x) = make_float2(sum[0] * kShare, sum[1] * kShare);
            } else {
                x[0] = sum[0] * kShare;
                if (c + 1 < width) x[1] = sum[1] * kShare;
            }
        }
    }
};

template <int kStreams>
void mix(Queue& queue, const op::StreamRead& args, const RoundedRows& low,
         MatrixView<const float> inverse) {
    const RoundedRows up = rounded_matrix(queue, args.up);
    const std::int64_t cols = (args.x.cols + 7) / 8 * 8 * kStreams;
    multiply_rounded(queue, low, TurningMatrix{up, kStreams}, cols,
                     StoreMixed<kStreams>{args, inverse});
}

}  // namespace

void stream_read(const op::StreamRead& args, device::Queue& queue) {
    const std::int64_t rows = args.x.rows;
    const std::int64_t all = args.streams * args.x.cols;
    STRATA_CHECK(args.residual.rows == rows && args.residual.cols == all);
    STRATA_CHECK(args.down.cols == all && args.up.rows == all && args.up.cols == args.down.rows);
    if (args.streams == 3 || args.streams > kStreamsMax) return cuda::stream_read(args, queue);
    Queue& own = begin_op(queue);
    Normed normed{take_rounded(own, rows, all), own.matrix(rows, args.streams), {}, 1};
    if (!args.inject_weight.empty()) {
        normed.inject_weight = rounded_matrix(own, args.inject_weight);
        normed.inject_factor = args.inject_weight.factor;
    }
    launch(own,
           {dim3(static_cast<unsigned>(rows)), kThreads,
            static_cast<std::size_t>(all) * sizeof(float)},
           norm_streams, args, normed);
    const RoundedRows low = take_rounded(own, rows, args.down.rows);
    multiply_rounded(
        own, normed.rows, RoundedMatrix{rounded_matrix(own, args.down)}, low.stride,
        StoreLow{low, args.down.rows, args.down.factor, static_cast<float>(args.streams)});
    if (args.streams == 4) return mix<4>(own, args, low, normed.inverse);
    if (args.streams == 2) return mix<2>(own, args, low, normed.inverse);
    mix<1>(own, args, low, normed.inverse);
}

}  // namespace strata::cuda::prompt
