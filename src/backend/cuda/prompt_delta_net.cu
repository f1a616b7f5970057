// op/delta_net.h for prompts: the products on tensor cores, then a pass that convolves and makes
// units, the recurrence (prompt_delta_run.cu), and a pass that norms and gates its reads. The
// passes are bound by the memory that they move.
#include "backend/cuda/history.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/multiply.h"
#include "backend/cuda/prompt.h"
#include "backend/cuda/prompt_delta.h"
#include "backend/cuda/tensor_core.cuh"
#include "base/check.h"

namespace strata::cuda::prompt {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// A norm of zero must not divide: model.md 2.5.
constexpr float kNormFloor = 1e-6f;

// Past the bound the difference of log(1 + e^x) from x is under half a unit in the last place.
__device__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

struct Convolve {
    op::DeltaNet args;
    MatrixView<const float> u;
    MatrixView<float> c;
    MatrixView<float> units;
    MatrixView<float> match;

    __device__ const float* row(std::int64_t t) const {
        return t >= 0 ? u.row(t) : args.from.history + (t + args.shape.kernel - 1) * u.cols;
    }
    __device__ float at(std::int64_t t, std::int64_t channel) const {
        const int taps = args.shape.kernel;
        const float* weight = args.conv + channel * taps;
        float sum = 0.0f;
        if (taps == 4 && reinterpret_cast<std::uint64_t>(args.conv) % sizeof(float4) == 0) {
            const float4 four = *reinterpret_cast<const float4*>(weight);
            sum = four.x * row(t - 3)[channel];
            sum = __fmaf_rn(four.y, row(t - 2)[channel], sum);
            sum = __fmaf_rn(four.z, row(t - 1)[channel], sum);
            return silu(__fmaf_rn(four.w, row(t)[channel], sum));
        }
        for (int j = 0; j < taps; ++j) {
            sum = __fmaf_rn(weight[j], row(t - (taps - 1) + j)[channel], sum);
        }
        return silu(sum);
    }
};

// Blocks (row, ..): warps take the key heads, then all threads the values.
__global__ void __launch_bounds__(kThreads) convolve(Convolve work) {
    const op::DeltaShape& shape = work.args.shape;
    const std::int64_t t = blockIdx.x;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int dk = shape.key_dim;
    const std::int64_t keys = std::int64_t{shape.key_heads} * dk;
    float* c = work.c.row(t);
    float* units = work.units.row(t);
    for (int h = static_cast<int>(threadIdx.x) / kWarp; h < shape.key_heads; h += kWarps) {
        float q_squares = 0.0f;
        float k_squares = 0.0f;
        float both = 0.0f;
        for (int i = lane; i < dk; i += kWarp) {
            const float q = work.at(t, h * dk + i);
            const float k = work.at(t, keys + h * dk + i);
            c[h * dk + i] = q;
            c[keys + h * dk + i] = k;
            q_squares = __fmaf_rn(q, q, q_squares);
            k_squares = __fmaf_rn(k, k, k_squares);
            both = __fmaf_rn(q, k, both);
        }
        const float q_scale =
            1.0f / sqrtf(warp_sum(q_squares) + kNormFloor) * (1.0f / sqrtf(static_cast<float>(dk)));
        const float k_scale = 1.0f / sqrtf(warp_sum(k_squares) + kNormFloor);
        both = warp_sum(both) * q_scale * k_scale;
        for (int i = lane; i < dk; i += kWarp) {
            units[h * dk + i] = c[h * dk + i] * q_scale;
            units[keys + h * dk + i] = c[keys + h * dk + i] * k_scale;
        }
        if (lane == 0) work.match.row(t)[h] = both;
    }
    for (std::int64_t i = 2 * keys + threadIdx.x; i < work.c.cols; i += kThreads) {
        c[i] = work.at(t, i);
    }
}

// Turns the products b and a into beta and the decay.
struct Gates {
    op::DeltaNet args;
    MatrixView<float> beta;
    MatrixView<float> decay;
    MatrixView<const float> match;
    MatrixView<float> gates;

    __device__ void operator()(std::int64_t i) const {
        const std::int64_t h = i % beta.cols;
        const float b = sigmoid(beta.data[i]);
        const float alpha = expf(args.decay_rate[h] * softplus(decay.data[i] + args.decay_bias[h]));
        beta.data[i] = b;
        decay.data[i] = alpha;
        const float both = match.row(i / beta.cols)[key_head(args, static_cast<int>(h))];
        reinterpret_cast<float4*>(gates.data)[i] = make_float4(alpha, b, both, 0.0f);
    }
};

// n = o / sqrt(mean(o^2) + eps) * norm * sigmoid(z), rounded: a warp a head.
struct Gated {
    op::DeltaNet args;
    MatrixView<const float> o;
    MatrixView<const float> z;
    RoundedRows out;
};
__global__ void __launch_bounds__(kThreads) gate_heads(Gated work) {
    const std::int64_t t = blockIdx.x;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int dv = work.args.shape.value_dim;
    for (int h = static_cast<int>(threadIdx.x) / kWarp; h < work.args.shape.value_heads;
         h += kWarps) {
        const float* o = work.o.row(t) + std::int64_t{h} * dv;
        const float* z = work.z.row(t) + std::int64_t{h} * dv;
        std::uint16_t* out = work.out.row(t) + std::int64_t{h} * dv;
        float squares = 0.0f;
        for (int i = lane; i < dv; i += kWarp) squares = __fmaf_rn(o[i], o[i], squares);
        const float mean = warp_sum(squares) / static_cast<float>(dv);
        const float inverse = 1.0f / sqrtf(mean + work.args.epsilon);
        for (int i = lane; i < dv; i += kWarp) {
            out[i] = bf16_of(o[i] * inverse * work.args.norm[i] * sigmoid(z[i]));
        }
    }
    for (std::int64_t i = work.o.cols + threadIdx.x; i < work.out.stride; i += kThreads) {
        work.out.row(t)[i] = 0;
    }
}

MatrixView<float> view_or_scratch(Queue& queue, MatrixView<float> wanted, std::int64_t rows,
                                  std::int64_t cols) {
    return wanted.empty() ? queue.matrix(rows, cols) : wanted;
}

void check(const op::DeltaNet& args) {
    const op::DeltaShape& shape = args.shape;
    STRATA_CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0);
    STRATA_CHECK(args.qkv.rows == shape.channels());
    STRATA_CHECK(args.gate.rows == shape.value_width());
    STRATA_CHECK(args.beta_weight.rows == shape.value_heads);
    STRATA_CHECK(args.alpha_weight.rows == shape.value_heads);
    STRATA_CHECK(args.out.cols == shape.value_width());
}

}  // namespace

void delta_net(const op::DeltaNet& args, device::Queue& queue) {
    const op::DeltaShape& shape = args.shape;
    check(args);
    // Shapes of test models.
    if (!runs_delta(shape)) return cuda::delta_net(args, queue);
    Queue& own = begin_op(queue);
    const std::int64_t rows = args.x.rows;
    const std::int64_t keys = std::int64_t{shape.key_heads} * shape.key_dim;
    const auto u = view_or_scratch(own, args.trace.projected, rows, shape.channels());
    const auto c = view_or_scratch(own, args.trace.convolved, rows, shape.channels());
    const auto beta = view_or_scratch(own, args.trace.beta, rows, shape.value_heads);
    const auto decay = view_or_scratch(own, args.trace.decay, rows, shape.value_heads);
    const auto z = own.matrix(rows, shape.value_width());
    const auto units = own.matrix(rows, 2 * keys);
    const auto match = own.matrix(rows, shape.key_heads);
    const auto gates = own.matrix(rows, kGates * std::int64_t{shape.value_heads});
    const auto o = own.matrix(rows, shape.value_width());
    const RoundedRows heads = take_rounded(own, rows, shape.value_width());

    PromptInput x(own, args.x);
    multiply(x, args.qkv, u);
    multiply(x, args.gate, z);
    multiply(x, args.beta_weight, beta);
    multiply(x, args.alpha_weight, decay);
    const dim3 each_row(static_cast<unsigned>(rows));
    launch(own, {each_row, kThreads}, convolve, Convolve{args, u, c, units, match});
    for_each(own, beta.size(), Gates{args, beta, decay, match, gates});
    run_delta(own, args, {units, {c.data + 2 * keys, rows, shape.value_width()}, c.cols, gates, o});
    launch(own, {each_row, kThreads}, gate_heads, Gated{args, o, z, heads});
    PromptInput read(own, heads, shape.value_width());
    multiply(read, args.out, args.y);
    advance_history(own, args.from.history, {args.to.history, shape.kernel - 1, shape.channels()},
                    u, rows);
}

}  // namespace strata::cuda::prompt
