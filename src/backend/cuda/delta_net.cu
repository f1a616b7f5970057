// Bounded by reading the five weights at few rows. Between the products one launch does the
// convolution, units, gates and the recurrence with a head's memory in registers (read and written
// once a call: what comes next after the weights), in blocks of a value head or of some of its
// columns, and norm and gate where a block has the head; else they go with the rounding of the rows
// for the last product. Blocks of one key head each convolve its queries and keys again, which
// costs less than a launch.
#include <algorithm>

#include "backend/cuda/delta_heads.cuh"
#include "backend/cuda/delta_window.h"
#include "backend/cuda/fours.cuh"
#include "backend/cuda/history.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/operand.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/project.h"
#include "base/check.h"

namespace strata::cuda {
namespace {

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
#pragma unroll 1
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
    __device__ void load(const DeltaTile& tile, int h, const HeadPart& part, std::int64_t first,
                         int rows) const {
        constexpr int kTogether = 3;  // channels of a thread that are asked for at once
        const op::DeltaShape& s = args.shape;
        const HeadChannels channels(s, args.order, h, part);
        const bool traces = !args.trace.convolved.empty();
        const bool traces_key = traces && part.first == 0 && owns_key(s, args.order, h);
        // Queries, keys and values in one go.
        const int all = channels.count();
        int row = 0;
        int at = static_cast<int>(threadIdx.x);
#pragma unroll 1
        while (at + row * all < rows * all) {
            float value[kTogether];
            int row_of[kTogether];
            int at_of[kTogether];
#pragma unroll
            for (int j = 0; j < kTogether; ++j) {
                while (at >= all) {
                    at -= all;
                    ++row;
                }
                row_of[j] = row;
                at_of[j] = at;
                value[j] = convolved(first + min(row, rows - 1), channels.at(at));
                at += kThreads;
            }
#pragma unroll
            for (int j = 0; j < kTogether; ++j) {
                if (row_of[j] >= rows) break;
                const bool key = at_of[j] < 2 * s.key_dim;
                float* to = at_of[j] < s.key_dim ? tile.q + row_of[j] * s.key_dim
                            : key                ? tile.k + (row_of[j] - 1) * s.key_dim
                                  : tile.v + row_of[j] * s.value_dim + part.first - 2 * s.key_dim;
                to[at_of[j]] = value[j];
                if (key ? traces_key : traces) {
                    args.trace.convolved.row(first + row_of[j])[channels.at(at_of[j])] = value[j];
                }
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
        if (part.first != 0) return;
        if (!args.trace.beta.empty()) args.trace.beta.row(first + i)[h] = beta;
        if (!args.trace.decay.empty()) args.trace.decay.row(first + i)[h] = alpha;
    }

    // Has the rows from `first` on written to `out` as they are.
    __device__ void store_to_rows(DeltaTile& tile, int h, std::int64_t first) const {
        tile.o = out.row(first) + std::int64_t{h} * args.shape.value_dim;
        tile.o_stride = out.cols;
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
    __device__ void keep(int h, const HeadPart& part) const {
        if (args.to.history == args.from.history) return;  // others still read it
        keep_history<kThreads>(args.shape, args.order, h, part, args.from.history, args.to.history,
                               u, u.rows);
    }
};

// Takes the memory of head blockIdx.x through `count` rows; it is older than the kernel before,
// which made the rows.
template <typename Memory>
__global__ void __launch_bounds__(Memory::kThreads)
    run_heads(const __grid_constant__ Projected source, std::int64_t count, const float* from,
              float* to) {
    constexpr int kThreads = Memory::kThreads;
    constexpr bool kParts = Memory::kColumns != 0;
    const auto h = static_cast<int>(blockIdx.x);
    const op::DeltaShape& shape = source.shape();
    const HeadPart part(shape, Memory::kColumns);
    DeltaTile tile(reinterpret_cast<float*>(shared_bytes()), shape);
    const std::int64_t at = std::int64_t{h} * shape.key_dim * shape.value_dim;
    Memory memory(shape, from + at, to + at);
    follow_earlier_kernels();
#pragma unroll 1
    for (std::int64_t first = 0; first < count; first += kDeltaRows) {
        const auto rows = static_cast<int>(min(std::int64_t{kDeltaRows}, count - first));
        source.template load<kThreads>(tile, h, part, first, rows);
        if constexpr (kParts) source.store_to_rows(tile, h, first);
        __syncthreads();
        make_units<kThreads>(tile, shape.key_dim, rows);
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < rows; ++i) memory.template step<true>(tile, i);
        if (kParts && first + kDeltaRows >= count) break;
        __syncthreads();
        if constexpr (!kParts) {
            source.template store<kThreads>(tile, h, first, rows);
            __syncthreads();
        }
    }
    memory.finish();
    source.template keep<kThreads>(h, part);
}

// Whether heads are split among blocks, so that norm and gate are left to do.
bool launch_heads(Queue& queue, const Projected& source, std::int64_t count, const float* from,
                  float* to) {
    const op::DeltaShape& shape = source.args.shape;
    bool split = false;
    with_delta_memory(shape, in_fours(from) && in_fours(to), [&]<typename Memory>() {
        split = Memory::kColumns != 0;
        const int parts = split ? shape.value_dim / std::max(Memory::kColumns, 1) : 1;
        launch_dependent(
            queue,
            {dim3(static_cast<unsigned>(shape.value_heads), static_cast<unsigned>(parts)),
             Memory::kThreads, delta_tile_bytes(shape)},
            run_heads<Memory>, source, count, from, to);
    });
    return split;
}

// Rows of heads of kGatedDim values, o / sqrt(mean(o^2) + eps) * norm * sigmoid(z).
constexpr int kGatedDim = 128;
struct GatedRows {
    MatrixView<float> o;
    MatrixView<const float> z;
    op::Gain norm;
    float epsilon;
    int cols;

    // All of a warp call it, each with the next eight columns.
    __device__ void eight(std::int64_t row, int column, float* to) const {
        float gate[kPiece];
        load_eight(z.row(row) + column, gate);
        load_eight(o.row(row) + column, to);
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < kPiece; ++i) squares = __fmaf_rn(to[i], to[i], squares);
#pragma unroll
        for (int by = kGatedDim / kPiece / 2; by > 0; by /= 2) {
            squares += __shfl_xor_sync(kAllLanes, squares, by);
        }
        const float inverse = inverse_rms(squares, kGatedDim, epsilon);
#pragma unroll
        for (int i = 0; i < kPiece; ++i) {
            to[i] = to[i] * inverse * norm[column % kGatedDim + i] * sigmoid(gate[i]);
        }
    }
};

constexpr int kGateThreads = 128;

// A warp kTogether columns: rounded for products in groups of `group`, or in place of o.
__global__ void __launch_bounds__(kGateThreads)
    gate_rows(const __grid_constant__ GatedRows rows, int group, std::byte* made) {
    follow_earlier_kernels();
    const std::int64_t t = blockIdx.y;
    const auto thread = static_cast<int>(blockIdx.x * kGateThreads + threadIdx.x);
    const int column = thread / kWarp * kTogether;
    if (column >= rows.cols) return;
    if (group != kPlain) {
        round_columns(rows, t, column, group, made + t * operand_bytes(group, rows.cols));
        return;
    }
    const int own = column + thread % kWarp * kPiece;
    float values[kPiece];
    rows.eight(t, own, values);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) rows.o.row(t)[own + i] = values[i];
}

// The rows as products in groups of `group` read them; null: in place of o.
const std::byte* gate_heads(Queue& queue, const GatedRows& rows, int group) {
    static_assert(2 * kGatedDim == kTogether);
    std::byte* made = nullptr;
    if (group != kPlain) {
        made = queue.take<std::byte>(rows.o.rows * operand_bytes(group, rows.cols));
    }
    const int across = rows.cols / kTogether;
    constexpr int kGateWarps = kGateThreads / kWarp;
    launch_dependent(queue,
                     {dim3(static_cast<unsigned>((across + kGateWarps - 1) / kGateWarps),
                           static_cast<unsigned>(rows.o.rows)),
                      kGateThreads},
                     gate_rows, rows, group, made);
    return made;
}

void check(const op::DeltaNet& args) {
    const op::DeltaShape& shape = args.shape;
    const std::int64_t width = args.x.cols;
    check_shape(shape);
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
    const std::byte* made = nullptr;
    bool split = has_window_heads(args);
    if (split) {
        window_heads(own, args, {u, b, a, heads});
    } else {
        split = launch_heads(own, Projected{args, u, z, b, a, heads}, rows, args.from.memory,
                             args.to.memory);
    }
    if (split) {
        made = gate_heads(own, {heads, z, args.norm, args.epsilon, static_cast<int>(heads.cols)},
                          group_of(args.out.type));
    }
    project_rounded(own, heads, made, args.out, args.y);
    if (args.to.history == args.from.history) {
        advance_history(own, args.from.history,
                        {args.to.history, shape.kernel - 1, shape.channels()}, u, rows);
    }
}

}  // namespace strata::cuda
