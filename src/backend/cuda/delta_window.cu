// Bounded by latency: some columns of a head are a block's, whose memory, taps and history are in
// registers when the rows come. The rows of a window are asked for four at a time.
#include "backend/cuda/delta_window.h"

#include <limits>

#include "backend/cuda/delta.cuh"
#include "backend/cuda/fours.cuh"
#include "backend/cuda/launch.cuh"

namespace strata::cuda {
namespace {

constexpr int kDim = 128;
constexpr int kColumns = 32;  // of a block
using Memory = DeltaRegisters<kDim, kColumns>;
constexpr int kThreads = Memory::kThreads;
constexpr int kTaps = 4;
// Kernels count values in 32 bits: those of all heads' memories, and of all rows.
constexpr std::int64_t kValuesMax = std::numeric_limits<int>::max();
constexpr int kChannels = 2 * kDim + kColumns;  // of a block: queries, keys, values
constexpr int kEach = (kChannels + kThreads - 1) / kThreads;

// In few bytes: a kernel waits for its parameters.
struct WindowHeads {
    const float* u;
    const float* b;
    const float* a;
    float* o;
    const float* conv;
    const float* decay_rate;
    const float* decay_bias;
    const float* memory;
    const float* history;
    float* memory_to;
    float* history_to;  // null: others still read it
    float* convolved;   // null: no trace
    float* beta;        // likewise
    float* decay;
    int rows;
    int key_heads;
    int value_heads;
    op::HeadOrder order;

    __device__ int channels() const { return (2 * key_heads + value_heads) * kDim; }
    __device__ op::DeltaShape shape() const { return {key_heads, value_heads, kDim, kDim, kTaps}; }
};

// The channels of a thread, with the three rows before the next one.
struct Taps {
    int channel[kEach];
    float weight[kEach][kTaps];
    float before[kEach][kTaps - 1];

    __device__ static int number(int e) { return static_cast<int>(threadIdx.x) + e * kThreads; }
    __device__ static bool has(int e) { return number(e) < kChannels; }

    __device__ Taps(const WindowHeads& args, int key_head, int first_value) {
        const int keys = args.key_heads * kDim;
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
            const int i = number(e);
            channel[e] = i < 2 * kDim ? i / kDim * keys + key_head * kDim + i % kDim
                                      : 2 * keys + first_value + min(i, kChannels - 1) - 2 * kDim;
            const auto taps = load_early<uint4>(args.conv + channel[e] * kTaps);
            weight[e][0] = __uint_as_float(taps.x), weight[e][1] = __uint_as_float(taps.y);
            weight[e][2] = __uint_as_float(taps.z), weight[e][3] = __uint_as_float(taps.w);
#pragma unroll
            for (int j = 0; j < kTaps - 1; ++j) {
                before[e][j] = __uint_as_float(
                    load_early<unsigned>(args.history + j * args.channels() + channel[e]));
            }
        }
    }
    __device__ float next(int e, float now) {
        float sum = __fmaf_rn(weight[e][0], before[e][0], 0.0f);
        sum = __fmaf_rn(weight[e][1], before[e][1], sum);
        sum = __fmaf_rn(weight[e][2], before[e][2], sum);
        sum = __fmaf_rn(weight[e][3], now, sum);
        before[e][0] = before[e][1];
        before[e][1] = before[e][2];
        before[e][2] = now;
        return silu(sum);
    }
    __device__ void keep(const WindowHeads& args, bool keeps_key) const {
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
            if (!has(e) || (number(e) < 2 * kDim && !keeps_key)) continue;
#pragma unroll
            for (int j = 0; j < kTaps - 1; ++j) {
                args.history_to[j * args.channels() + channel[e]] = before[e][j];
            }
        }
    }
};

// What the thread of a row needs of its gates, of any other nothing.
struct Gate {
    float rate;
    float bias;

    __device__ Gate(const WindowHeads& args, int h) {
        rate = __uint_as_float(load_early<unsigned>(args.decay_rate + h));
        bias = __uint_as_float(load_early<unsigned>(args.decay_bias + h));
    }

    __device__ void store(const WindowHeads& args, int h, int t, bool traces, float& beta,
                          float& alpha) const {
        const int at = t * args.value_heads + h;
        beta = sigmoid(args.b[at]);
        alpha = expf(rate * softplus(args.a[at] + bias));
        if (traces && args.beta != nullptr) args.beta[at] = beta;
        if (traces && args.decay != nullptr) args.decay[at] = alpha;
    }
};

// Rows `first` to `first` + `rows` of the window as the recurrence reads them, kTogether at a time.
template <int kTogether>
__device__ __forceinline__ void bring_rows(const WindowHeads& args, const DeltaTile& tile,
                                           Taps& taps, int first, int rows, bool keeps_key) {
    const int part = static_cast<int>(blockIdx.y) * kColumns;
#pragma unroll 1
    for (int begin = 0; begin < rows; begin += kTogether) {
        float now[kTogether][kEach];
#pragma unroll
        for (int r = 0; r < kTogether; ++r) {
            const int row = first + min(begin + r, rows - 1);
#pragma unroll
            for (int e = 0; e < kEach; ++e) {
                now[r][e] = args.u[row * args.channels() + taps.channel[e]];
            }
        }
#pragma unroll
        for (int r = 0; r < kTogether; ++r) {
            const int row = begin + r;
            if (row >= rows) break;
#pragma unroll
            for (int e = 0; e < kEach; ++e) {
                const int i = Taps::number(e);
                const float value = taps.next(e, now[r][e]);
                if (!Taps::has(e)) continue;
                float* to = i < kDim       ? tile.q + i
                            : i < 2 * kDim ? tile.k + i - kDim
                                           : tile.v + part + i - 2 * kDim;
                to[row * kDim] = value;
                if (args.convolved != nullptr && (i >= 2 * kDim || keeps_key)) {
                    args.convolved[(first + row) * args.channels() + taps.channel[e]] = value;
                }
            }
        }
    }
}

// Block (head, some of its columns). State and history are older than the kernel before, which made
// the rows.
template <int kTogether>
__global__ void __launch_bounds__(kThreads) run_window(const __grid_constant__ WindowHeads args) {
    const auto h = static_cast<int>(blockIdx.x);
    const auto thread = static_cast<int>(threadIdx.x);
    const int part = static_cast<int>(blockIdx.y) * kColumns;
    const op::DeltaShape shape = args.shape();
    Taps taps(args, delta_key_head(shape, args.order, h), h * kDim + part);
    const Gate gate(args, h);
    Memory memory(shape, args.memory + h * kDim * kDim, args.memory_to + h * kDim * kDim);
    DeltaTile tile(reinterpret_cast<float*>(shared_bytes()), shape);
    const bool keeps_key = part == 0 && owns_key(args.shape(), args.order, h);
    follow_earlier_kernels();
#pragma unroll 1
    for (int first = 0; first < args.rows; first += kDeltaRows) {
        const int rows = min(kDeltaRows, args.rows - first);
        // By the last threads, which have the least to convolve.
        const int own = kThreads - 1 - thread;
        if (own < rows) {
            gate.store(args, h, first + own, part == 0, tile.beta[own], tile.alpha[own]);
        }
        bring_rows<kTogether>(args, tile, taps, first, rows, keeps_key);
        tile.o_stride = args.value_heads * kDim;
        tile.o = args.o + first * tile.o_stride + h * kDim;
        __syncthreads();
        make_units<kThreads>(tile, kDim, rows);
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < rows; ++i) memory.template step<true>(tile, i);
        if (first + kDeltaRows < args.rows) __syncthreads();
    }
    memory.finish();
    if (args.history_to != nullptr) taps.keep(args, keeps_key);
}

}  // namespace

bool has_window_heads(const op::DeltaNet& args) {
    const op::DeltaShape& shape = args.shape;
    if (std::int64_t{shape.value_heads} * kDim * kDim > kValuesMax) return false;
    // What comes after takes two heads a warp.
    return shape.key_dim == kDim && shape.value_dim == kDim && shape.kernel == kTaps &&
           shape.value_heads % 2 == 0 && in_fours(args.from.memory) && in_fours(args.to.memory) &&
           in_fours(args.conv);
}

void window_heads(Queue& queue, const op::DeltaNet& args, const WindowRows& rows) {
    const op::DeltaShape& shape = args.shape;
    STRATA_CHECK(rows.u.rows <= kValuesMax / rows.u.cols);
    const WindowHeads all{
        .u = rows.u.data,
        .b = rows.b.data,
        .a = rows.a.data,
        .o = rows.o.data,
        .conv = args.conv,
        .decay_rate = args.decay_rate,
        .decay_bias = args.decay_bias,
        .memory = args.from.memory,
        .history = args.from.history,
        .memory_to = args.to.memory,
        .history_to = args.to.history == args.from.history ? nullptr : args.to.history,
        .convolved = args.trace.convolved.data,
        .beta = args.trace.beta.data,
        .decay = args.trace.decay.data,
        .rows = static_cast<int>(rows.u.rows),
        .key_heads = shape.key_heads,
        .value_heads = shape.value_heads,
        .order = args.order};
    launch_dependent(
        queue,
        {dim3(static_cast<unsigned>(shape.value_heads), static_cast<unsigned>(kDim / kColumns)),
         kThreads, delta_tile_bytes(shape)},
        rows.u.rows == 1 ? run_window<1> : run_window<4>, all);
}

}  // namespace strata::cuda
