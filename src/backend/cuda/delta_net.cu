// Bounded by reading the five weights at few rows. Between the products one launch does all else, a
// block a value head: convolution, units, gates, the recurrence with the head's memory in registers
// (read and written once a call: what comes next after the weights), norm and gate. The heads of
// one key head each convolve its queries and keys again, which costs less than a launch.
#include "backend/cuda/delta.cuh"
#include "backend/cuda/history.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/project.h"
#include "base/check.h"

namespace strata::cuda {
namespace {

void check(const op::DeltaShape& shape) {
    STRATA_CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0);
    STRATA_CHECK(shape.key_dim > 0 && shape.value_dim > 0 && shape.kernel > 0);
}

// Whether value head h answers for what its key head leaves.
__device__ bool owns_key(const op::DeltaShape& shape, op::HeadOrder order, int h) {
    if (order == op::HeadOrder::tiled) return h < shape.key_heads;
    return h % (shape.value_heads / shape.key_heads) == 0;
}

// The channels of value head h: its key head's queries and keys, and its values.
struct HeadChannels {
    int key_dim;
    int value_dim;
    std::int64_t query;
    std::int64_t key;
    std::int64_t value;

    __device__ HeadChannels(const op::DeltaShape& shape, op::HeadOrder order, int h)
        : key_dim(shape.key_dim),
          value_dim(shape.value_dim),
          query(std::int64_t{delta_key_head(shape, order, h)} * shape.key_dim),
          key(std::int64_t{shape.key_heads} * shape.key_dim + query),
          value(2 * std::int64_t{shape.key_heads} * shape.key_dim +
                std::int64_t{h} * shape.value_dim) {}
    __device__ int count() const { return 2 * key_dim + value_dim; }
    __device__ std::int64_t at(int i) const {
        return i < key_dim       ? query + i
               : i < 2 * key_dim ? key + i - key_dim
                                 : value + i - 2 * key_dim;
    }
};

// to = the last rows of (from ++ u[0 .. rows)), of the channels that value head h answers for. A
// thread walks down a channel, so that `to` may be `from` where nobody else reads it.
template <int kThreads>
__device__ void keep_history(const op::DeltaShape& shape, op::HeadOrder order, int h,
                             const float* from, float* to, MatrixView<const float> u,
                             std::int64_t rows) {
    constexpr int kTogether = 4;  // rows that are asked for at once
    const int kept = shape.kernel - 1;
    const HeadChannels channels(shape, order, h);
    const int first = owns_key(shape, order, h) ? 0 : 2 * shape.key_dim;
    for (int i = first + static_cast<int>(threadIdx.x); i < channels.count(); i += kThreads) {
        const std::int64_t channel = channels.at(i);
        for (int r = 0; r < kept; r += kTogether) {
            float value[kTogether];
#pragma unroll
            for (int j = 0; j < kTogether; ++j) {
                const std::int64_t row = min(r + j, kept - 1) + rows;
                value[j] = row < kept ? from[row * u.cols + channel] : u.row(row - kept)[channel];
            }
#pragma unroll
            for (int j = 0; j < kTogether; ++j) {
                if (r + j < kept) to[(r + j) * u.cols + channel] = value[j];
            }
        }
    }
}

// Rows that come from the products of DeltaNet.
struct Projected {
    op::DeltaNet args;
    MatrixView<const float> u;
    MatrixView<const float> z;
    MatrixView<const float> b;
    MatrixView<const float> a;
    MatrixView<float> out;  // [T, Hv*dv]

    __device__ const op::DeltaShape& shape() const { return args.shape; }

    __device__ float convolved(std::int64_t t, std::int64_t channel) const {
        constexpr int kTogether = 4;  // taps that are asked for at once
        const int taps = args.shape.kernel;
        float sum = 0.0f;
        for (int first = 0; first < taps; first += kTogether) {
            float weight[kTogether];
            float value[kTogether];
#pragma unroll
            for (int j = 0; j < kTogether; ++j) {
                const int tap = min(first + j, taps - 1);
                const std::int64_t row = t - (taps - 1) + tap;
                const float* from = row >= 0 ? u.row(row) : args.from.history + (t + tap) * u.cols;
                weight[j] = args.conv[channel * taps + tap];
                value[j] = from[channel];
            }
#pragma unroll
            for (int j = 0; j < kTogether; ++j) {
                if (first + j < taps) sum = __fmaf_rn(weight[j], value[j], sum);
            }
        }
        return silu(sum);
    }

    template <int kThreads>
    __device__ void load(const DeltaTile& tile, int h, std::int64_t first, int rows) const {
        const op::DeltaShape& s = args.shape;
        const HeadChannels channels(s, args.order, h);
        const bool traces = !args.trace.convolved.empty();
        const bool traces_key = traces && owns_key(args.shape, args.order, h);
        // Queries, keys and values in one go.
        const int all = channels.count();
        for (int i = static_cast<int>(threadIdx.x); i < rows * all; i += kThreads) {
            const int row = i / all;
            const int at = i % all;
            const std::int64_t channel = channels.at(at);
            const float value = convolved(first + row, channel);
            if (at < s.key_dim) {
                tile.q[row * s.key_dim + at] = value;
            } else if (at < 2 * s.key_dim) {
                tile.k[row * s.key_dim + at - s.key_dim] = value;
            } else {
                tile.v[row * s.value_dim + at - 2 * s.key_dim] = value;
            }
            if (at < 2 * s.key_dim ? traces_key : traces) {
                args.trace.convolved.row(first + row)[channel] = value;
            }
        }
        // By the last threads, which have the least to convolve.
        const int i = kThreads - 1 - static_cast<int>(threadIdx.x);
        if (i >= rows) return;
        const float beta = sigmoid(b.row(first + i)[h]);
        const float alpha =
            expf(args.decay_rate[h] * softplus(a.row(first + i)[h] + args.decay_bias[h]));
        tile.beta[i] = beta;
        tile.alpha[i] = alpha;
        if (!args.trace.beta.empty()) args.trace.beta.row(first + i)[h] = beta;
        if (!args.trace.decay.empty()) args.trace.decay.row(first + i)[h] = alpha;
    }

    // out = o / sqrt(mean(o^2) + eps) * norm * sigmoid(z), a warp a row.
    template <int kThreads>
    __device__ void store(const DeltaTile& tile, int h, std::int64_t first, int rows) const {
        const int dv = args.shape.value_dim;
        const int lane = static_cast<int>(threadIdx.x) % kWarp;
        for (int i = static_cast<int>(threadIdx.x) / kWarp; i < rows; i += kThreads / kWarp) {
            const float* o = tile.o + i * dv;
            float squares = 0.0f;
            for (int c = lane; c < dv; c += kWarp) squares = __fmaf_rn(o[c], o[c], squares);
            const float inverse = inverse_rms(warp_sum(squares), dv, args.epsilon);
            const std::int64_t at = std::int64_t{h} * dv;
            for (int c = lane; c < dv; c += kWarp) {
                out.row(first + i)[at + c] =
                    o[c] * inverse * args.norm[c] * sigmoid(z.row(first + i)[at + c]);
            }
        }
    }

    template <int kThreads>
    __device__ void keep(int h) const {
        if (args.to.history == args.from.history) return;  // others still read it
        keep_history<kThreads>(args.shape, args.order, h, args.from.history, args.to.history, u,
                               u.rows);
    }
};

// Rows of a trace, of which the memory alone is wanted.
struct Traced {
    op::DeltaReplay args;

    __device__ const op::DeltaShape& shape() const { return args.shape; }

    template <int kThreads>
    __device__ void load(const DeltaTile& tile, int h, std::int64_t first, int rows) const {
        const op::DeltaShape& s = args.shape;
        const std::int64_t keys = std::int64_t{s.key_heads} * s.key_dim;
        const std::int64_t key = keys + delta_key_head(s, args.order, h) * s.key_dim;
        const std::int64_t value = 2 * keys + std::int64_t{h} * s.value_dim;
        const auto thread = static_cast<int>(threadIdx.x);
        for (int i = thread; i < rows * s.key_dim; i += kThreads) {
            const float* row = args.trace.convolved.row(first + i / s.key_dim);
            tile.q[i] = 0.0f;
            tile.k[i] = row[key + i % s.key_dim];
        }
        for (int i = thread; i < rows * s.value_dim; i += kThreads) {
            const float* row = args.trace.convolved.row(first + i / s.value_dim);
            tile.v[i] = row[value + i % s.value_dim];
        }
        if (thread >= rows) return;
        tile.beta[thread] = args.trace.beta.row(first + thread)[h];
        tile.alpha[thread] = args.trace.decay.row(first + thread)[h];
    }
    template <int kThreads>
    __device__ void store(const DeltaTile&, int, std::int64_t, int) const {}
    template <int kThreads>
    __device__ void keep(int h) const {
        keep_history<kThreads>(args.shape, args.order, h, args.state.history, args.state.history,
                               args.trace.projected, args.rows);
    }
};

// Takes the memory of head blockIdx.x through `count` rows.
template <typename Memory, bool kRead, typename Rows>
__global__ void __launch_bounds__(Memory::kThreads)
    run_heads(Rows source, std::int64_t count, const float* from, float* to) {
    follow_earlier_kernels();
    constexpr int kThreads = Memory::kThreads;
    const auto h = static_cast<int>(blockIdx.x);
    const op::DeltaShape& shape = source.shape();
    const DeltaTile tile(reinterpret_cast<float*>(shared_bytes()), shape);
    const std::int64_t at = std::int64_t{h} * shape.key_dim * shape.value_dim;
    Memory memory(shape, from + at, to + at);
    source.template keep<kThreads>(h);
    for (std::int64_t first = 0; first < count; first += kDeltaRows) {
        const auto rows = static_cast<int>(min(std::int64_t{kDeltaRows}, count - first));
        source.template load<kThreads>(tile, h, first, rows);
        __syncthreads();
        make_units<kThreads>(tile, shape.key_dim, rows);
        __syncthreads();
        for (int i = 0; i < rows; ++i) memory.template step<kRead>(tile, i);
        __syncthreads();
        if constexpr (kRead) {
            source.template store<kThreads>(tile, h, first, rows);
            __syncthreads();
        }
    }
    memory.finish();
}

template <bool kRead, typename Rows>
void launch_heads(Queue& queue, const Rows& source, const op::DeltaShape& shape, std::int64_t count,
                  const float* from, float* to) {
    with_delta_memory(shape, from, to, [&]<typename Memory>() {
        launch_dependent(queue,
                         {dim3(static_cast<unsigned>(shape.value_heads)), Memory::kThreads,
                          delta_tile_bytes(shape)},
                         run_heads<Memory, kRead, Rows>, source, count, from, to);
    });
}

void check(const op::DeltaNet& args) {
    const op::DeltaShape& shape = args.shape;
    const std::int64_t width = args.x.cols;
    check(shape);
    STRATA_CHECK(args.qkv.rows == shape.channels() && args.qkv.cols == width);
    STRATA_CHECK(args.gate.rows == shape.value_width() && args.gate.cols == width);
    STRATA_CHECK(args.beta_weight.rows == shape.value_heads);
    STRATA_CHECK(args.alpha_weight.rows == shape.value_heads);
    STRATA_CHECK(args.out.rows == args.y.cols && args.out.cols == shape.value_width());
    STRATA_CHECK(args.y.rows == args.x.rows && args.y.cols == width);
}

}  // namespace

void delta_net(const op::DeltaNet& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const op::DeltaShape& shape = args.shape;
    const std::int64_t rows = args.x.rows;
    if (rows == 0) return;
    const MatrixView<float> u =
        args.trace.projected.empty() ? own.matrix(rows, shape.channels()) : args.trace.projected;
    const MatrixView<float> z = own.matrix(rows, shape.value_width());
    const MatrixView<float> b = own.matrix(rows, shape.value_heads);
    const MatrixView<float> a = own.matrix(rows, shape.value_heads);
    const MatrixView<float> heads = own.matrix(rows, shape.value_width());
    const Product products[] = {
        {args.qkv, u}, {args.gate, z}, {args.beta_weight, b}, {args.alpha_weight, a}};
    project(own, args.x, products);
    launch_heads<true>(own, Projected{args, u, z, b, a, heads}, shape, rows, args.from.memory,
                       args.to.memory);
    project(own, heads, args.out, args.y);
    if (args.to.history == args.from.history) {
        advance_history(own, args.from.history,
                        {args.to.history, shape.kernel - 1, shape.channels()}, u, rows);
    }
}

void delta_replay(const op::DeltaReplay& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    const op::DeltaShape& shape = args.shape;
    check(shape);
    STRATA_CHECK(args.rows >= 0 && args.rows <= args.trace.projected.rows);
    STRATA_CHECK(args.trace.projected.cols == shape.channels());
    if (args.rows == 0) return;
    launch_heads<false>(own, Traced{args}, shape, args.rows, args.state.memory, args.state.memory);
}

}  // namespace strata::cuda
