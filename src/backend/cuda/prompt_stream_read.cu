// op/stream_read.h for prompts, in three launches: one pass over the residual (write-back, norms,
// inject), and the two products, whose ends make what comes after them. Bound by the memory that
// the residual and the normed rows take: 13 MB of traffic per hundred rows at 4 x 2560.
#include "backend/cuda/kernels.h"
#include "backend/cuda/multiply_rounded.cuh"
#include "backend/cuda/prompt.h"
#include "backend/cuda/prompt_norm.h"

namespace strata::cuda::prompt {
namespace {

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
    if (width % 2 == 0) return __ldg(reinterpret_cast<const float2*>(row + c));
    return make_float2(row[c], c % width + 1 < width ? row[c + 1] : 0.0f);
}

// Good to a few units in the last place, in a third of the instructions: there are as many gates as
// values of the residual.
__device__ float quick_sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// x from the gates of all streams, which a lane has side by side.
template <int kStreams>
struct StoreMixed {
    op::StreamRead args;
    MatrixView<const float> inverse;

    // The lines of the residual under a tile, while its sums are made: products of few columns end
    // before memory answers.
    __device__ void prepare(const TileJob& job, int tile_rows, int tile_cols) const {
        constexpr int kLineValues = kLineBytes / static_cast<int>(sizeof(float));
        const std::int64_t width = args.x.cols;
        const std::int64_t first = job.col / (8 * kStreams) * 8;
        const int lines = (tile_cols / kStreams + kLineValues - 1) / kLineValues;
        const int all = min(tile_rows, job.row_end - job.row) * kStreams * lines;
        for (int i = static_cast<int>(threadIdx.x); i < all; i += kMultiplyThreads) {
            const int row = job.row + i / lines / kStreams;
            const std::int64_t c = first + i % lines * kLineValues;
            if (c >= width) continue;
            const float* at = args.residual.row(row) + i / lines % kStreams * width + c;
            prefetch(reinterpret_cast<const std::byte*>(at));
        }
    }

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
                const float inverse_rms = __ldg(inverse.row(row) + s);
                const float2 r = two(residual, s * width + c, width);
                const float2 gain = two(args.norm, s * width + c, width);
                sum[0] = __fmaf_rn(quick_sigmoid(v[j + s][0] * args.up.factor),
                                   r.x * inverse_rms * gain.x, sum[0]);
                sum[1] = __fmaf_rn(quick_sigmoid(v[j + s][1] * args.up.factor),
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
    if (args.streams == 3 || args.streams > kNormedStreamsMax) {
        return cuda::stream_read(args, queue);
    }
    Queue& own = begin_op(queue);
    const Normed normed = norm_streams(own, args);
    const RoundedRows low = take_rounded(own, rows, args.down.rows);
    multiply_rounded(
        own, normed.rows, RoundedMatrix{rounded_matrix(own, args.down)}, low.stride,
        StoreLow{low, args.down.rows, args.down.factor, static_cast<float>(args.streams)});
    if (args.streams == 4) return mix<4>(own, args, low, normed.inverse);
    if (args.streams == 2) return mix<2>(own, args, low, normed.inverse);
    mix<1>(own, args, low, normed.inverse);
}

}  // namespace strata::cuda::prompt
