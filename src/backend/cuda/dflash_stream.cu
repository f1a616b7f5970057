// Bounded by their own latency: what is done with h between products, by many blocks. Those that
// write h leave what its norm needs, and ask for all that the kernel right before has not written
// before they wait for that.
#include "backend/cuda/dflash.h"
#include "backend/cuda/draft_rows.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/stored.cuh"

namespace strata::cuda {
namespace {

constexpr int kThreads = kDflashSquares;  // a column each
constexpr int kWarps = kThreads / kWarp;

unsigned blocks_across(std::int64_t cols) {
    return static_cast<unsigned>((cols + kThreads - 1) / kThreads);
}

// What a channel of tap t of row i is multiplied with.
__device__ inline float tap_weight(const DflashSteps& steps, const float* base, int side, int t,
                                   std::int64_t i, int channel) {
    const auto cols = static_cast<int>(steps.hidden.cols);
    const int tap = side * steps.args.taps + t;
    const int groups = cols / steps.args.group;
    return base[tap * cols + channel] +
           load_settled(steps.delta.row(i) + tap * groups + channel / steps.args.group);
}

template <typename Stored>
struct Embedded {
    op::DflashBlock args;

    struct Early {};  // tokens may be fresh
    __device__ Early early(std::int64_t, int) const { return {}; }
    __device__ float value(const Early&, std::int64_t i, int channel) const {
        return Stored::at(args.table.row(args.tokens[i]), channel);
    }
};

// h + C(1, after). Deltas and h are not what the kernel right before has written.
struct Left {
    static constexpr int kTapsHeld = 2;
    DflashSteps steps;
    const float* base;

    struct Early {
        float hidden;
        float weight[kTapsHeld];
    };
    __device__ Early early(std::int64_t i, int channel) const {
        Early own{load_settled(steps.hidden.row(i) + channel), {}};
#pragma unroll
        for (int t = 0; t < kTapsHeld; ++t) {
            if (t < steps.args.taps) own.weight[t] = tap_weight(steps, base, 1, t, i, channel);
        }
        return own;
    }
    __device__ float value(const Early& early, std::int64_t i, int channel) const {
        float sum = 0.0f;
#pragma unroll
        for (int t = 0; t < kTapsHeld; ++t) {
            if (t >= steps.args.taps || t > i) break;
            sum = __fmaf_rn(early.weight[t], steps.after.row(i - t)[channel], sum);
        }
#pragma unroll 1
        for (int t = kTapsHeld; t < steps.args.taps && t <= i; ++t) {
            sum = __fmaf_rn(tap_weight(steps, base, 1, t, i, channel),
                            steps.after.row(i - t)[channel], sum);
        }
        return early.hidden + sum;
    }
};

// h = what `source` has: block (columns, row).
template <typename Source>
__global__ void __launch_bounds__(kThreads)
    write_hidden(const __grid_constant__ Source source, MatrixView<float> hidden,
                 MatrixView<float> squares) {
    __shared__ float sums[kWarps];
    const std::int64_t i = blockIdx.y;
    const int channel = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
    const bool is_one = channel < hidden.cols;
    typename Source::Early early{};
    if (is_one) early = source.early(i, channel);
    follow_earlier_kernels();
    const float value = is_one ? source.value(early, i, channel) : 0.0f;
    if (is_one) hidden.row(i)[channel] = value;
    const float sum = block_sum<kThreads>(value * value, sums);
    if (threadIdx.x == 0) squares.row(i)[blockIdx.x] = sum;
}

template <typename Source>
void launch_hidden(Queue& queue, const DflashSteps& steps, const Source& source) {
    const dim3 blocks(blocks_across(steps.hidden.cols), static_cast<unsigned>(steps.hidden.rows));
    launch_dependent(queue, {blocks, kThreads}, write_hidden<Source>, source, steps.hidden,
                     steps.squares);
}

// Block (columns, row).
__global__ void __launch_bounds__(kThreads)
    norm_hidden(const __grid_constant__ DflashSteps steps, op::Gain norm, MatrixView<float> to) {
    const std::int64_t i = blockIdx.y;
    const int channel = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
    follow_earlier_kernels();
    float sum = 0.0f;
    for (std::int64_t s = threadIdx.x % kWarp; s < steps.squares.cols; s += kWarp) {
        sum += steps.squares.row(i)[s];
    }
    const float inverse = inverse_rms(warp_sum(sum), to.cols, steps.args.epsilon);
    if (channel >= to.cols) return;
    to.row(i)[channel] = steps.hidden.row(i)[channel] * inverse * norm[channel];
}

// Rows C(0, a), a normed before.
struct Entered {
    DflashSteps steps;
    MatrixView<const float> normed;
    const float* base;

    __device__ void eight(std::int64_t row, int column, float (&to)[kPiece]) const {
        for (int t = 0; t < steps.args.taps && t <= row; ++t) {
            const float* from = normed.row(row - t);
#pragma unroll
            for (int i = 0; i < kPiece; ++i) {
                const int channel = column + i;
                if (channel >= normed.cols) break;
                to[i] =
                    __fmaf_rn(tap_weight(steps, base, 0, t, row, channel), from[channel], to[i]);
            }
        }
    }
};

}  // namespace

void dflash_begin(Queue& queue, const DflashSteps& steps) {
    with_stored(steps.args.table.type, [&](auto stored) {
        launch_hidden(queue, steps, Embedded<decltype(stored)>{steps.args});
    });
}

void dflash_leave(Queue& queue, const DflashSteps& steps, const op::DflashConv& conv) {
    launch_hidden(queue, steps, Left{steps, conv.base});
}

void dflash_norm(Queue& queue, const DflashSteps& steps, op::Gain norm, MatrixView<float> to) {
    const dim3 blocks(blocks_across(to.cols), static_cast<unsigned>(to.rows));
    launch_dependent(queue, {blocks, kThreads}, norm_hidden, steps, norm, to);
}

void dflash_enter(Queue& queue, const DflashSteps& steps, op::Gain norm, const op::DflashConv& conv,
                  std::span<const Product> products) {
    const MatrixView<float>& hidden = steps.hidden;
    const DraftRows rows = make_draft_rows(queue, hidden.rows, hidden.cols, products);
    if (enters_at_once(queue, steps, norm, conv, rows)) {
        enter_at_once(queue, steps, norm, conv, products, rows);
    } else {
        const MatrixView<float> normed = queue.matrix(hidden.rows, hidden.cols);
        dflash_norm(queue, steps, norm, normed);
        project(queue, normed, conv.projection, steps.delta);
        fill_draft_rows(queue, Entered{steps, normed, conv.base}, rows, products);
    }
    project_draft(queue, rows, products);
}

}  // namespace strata::cuda
