// op/delta_net.h for prompts: the products on tensor cores, then a pass that convolves and makes
// units, the recurrence (prompt_delta_run.cu) or its chunked form (prompt_delta_chunks.cu), and a
// pass that norms and gates its reads. The passes are bound by the memory that they move.
#include "backend/cuda/delta.cuh"
#include "backend/cuda/fours.cuh"
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

struct Convolve {
    op::DeltaNet args;
    MatrixView<const float> u;
    MatrixView<float> c;  // of the values, and for a trace of all channels
    MatrixView<float> units;
    MatrixView<float> match;
};

constexpr int kTaps = 4;
constexpr int kRowsTogether = 16;
constexpr int kWarpChannels = 4 * kWarp;

// Four neighbouring channels, row after row. Loads go past the stores of rows before: nothing of
// what is read changes here.
class FourChannels {
  public:
    // Of a row before `first`, or of none where `there` is false.
    __device__ FourChannels(const Convolve& work, std::int64_t channel, std::int64_t first,
                            bool there)
        : work_(work), channel_(channel), there_(there) {
        if (!there_) return;
#pragma unroll
        for (int i = 0; i < 4; ++i) weight_[i] = four_at(work.args.conv + (channel + i) * kTaps);
#pragma unroll
        for (int i = 0; i < kTaps - 1; ++i) {
            const std::int64_t t = first + i - (kTaps - 1);
            before_[i] =
                four_at(t >= 0 ? work.u.row(t) + channel
                               : work.args.from.history + (t + kTaps - 1) * work.u.cols + channel);
        }
    }
    __device__ float4 next(std::int64_t t) {
        if (!there_) return float4{};
        const float4 now = four_at(work_.u.row(t) + channel_);
        const float4 c =
            make_float4(convolved(weight_[0], before_[0].x, before_[1].x, before_[2].x, now.x),
                        convolved(weight_[1], before_[0].y, before_[1].y, before_[2].y, now.y),
                        convolved(weight_[2], before_[0].z, before_[1].z, before_[2].z, now.z),
                        convolved(weight_[3], before_[0].w, before_[1].w, before_[2].w, now.w));
        before_[0] = before_[1];
        before_[1] = before_[2];
        before_[2] = now;
        return c;
    }
    __device__ void store(float* row, const float4& v) const {
        if (there_) *reinterpret_cast<float4*>(row + channel_) = v;
    }

  private:
    __device__ static float convolved(const float4& weight, float a, float b, float c, float d) {
        return silu(
            __fmaf_rn(weight.w, d, __fmaf_rn(weight.z, c, __fmaf_rn(weight.y, b, weight.x * a))));
    }

    const Convolve& work_;
    std::int64_t channel_;
    bool there_;
    float4 weight_[4];
    float4 before_[kTaps - 1];
};

__device__ inline float dot_four(const float4& a, const float4& b) {
    return __fmaf_rn(a.w, b.w, __fmaf_rn(a.z, b.z, __fmaf_rn(a.y, b.y, a.x * b.x)));
}
__device__ inline float4 scaled(const float4& v, float by) {
    return make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
}
// Over the lanes of a key head.
__device__ inline float head_sum(float value, int lanes) {
    for (int by = lanes / 2; by > 0; by /= 2) value += __shfl_xor_sync(kAllLanes, value, by);
    return value;
}

// A warp takes queries and keys of the same heads.
__device__ void convolve_keys(const Convolve& work, std::int64_t channel, std::int64_t first,
                              std::int64_t end) {
    const op::DeltaShape& shape = work.args.shape;
    const int dk = shape.key_dim;
    const std::int64_t keys = std::int64_t{shape.key_heads} * dk;
    FourChannels queries(work, channel, first, channel < keys);
    FourChannels own(work, keys + channel, first, channel < keys);
    const float share = 1.0f / sqrtf(static_cast<float>(dk));
#pragma unroll 2
    for (std::int64_t t = first; t < end; ++t) {
        const float4 q = queries.next(t);
        const float4 k = own.next(t);
        const float q_squares = head_sum(dot_four(q, q), dk / 4);
        const float k_squares = head_sum(dot_four(k, k), dk / 4);
        const float both = head_sum(dot_four(q, k), dk / 4);
        const float q_scale = 1.0f / sqrtf(q_squares + kDeltaNormFloor) * share;
        const float k_scale = 1.0f / sqrtf(k_squares + kDeltaNormFloor);
        queries.store(work.units.row(t), scaled(q, q_scale));
        own.store(work.units.row(t), scaled(k, k_scale));
        if (channel < keys && channel % dk == 0) {
            work.match.row(t)[channel / dk] = both * q_scale * k_scale;
        }
        if (work.args.trace.convolved.empty()) continue;
        queries.store(work.c.row(t), q);
        own.store(work.c.row(t), k);
    }
}
__device__ void convolve_values(const Convolve& work, std::int64_t channel, std::int64_t first,
                                std::int64_t end) {
    FourChannels own(work, channel, first, channel < work.c.cols);
#pragma unroll 4
    for (std::int64_t t = first; t < end; ++t) own.store(work.c.row(t), own.next(t));
}

// Blocks (channels, rows): the first warps take the key heads, the others the values.
__global__ void __launch_bounds__(kThreads) convolve(Convolve work) {
    const op::DeltaShape& shape = work.args.shape;
    const std::int64_t keys = std::int64_t{shape.key_heads} * shape.key_dim;
    const std::int64_t key_warps = (keys + kWarpChannels - 1) / kWarpChannels;
    const std::int64_t warp =
        std::int64_t{blockIdx.x} * kWarps + static_cast<int>(threadIdx.x) / kWarp;
    const std::int64_t channel = 4 * (static_cast<int>(threadIdx.x) % kWarp);
    const std::int64_t first = std::int64_t{blockIdx.y} * kRowsTogether;
    const std::int64_t end = min(first + kRowsTogether, work.u.rows);
    if (warp < key_warps) {
        convolve_keys(work, warp * kWarpChannels + channel, first, end);
    } else {
        convolve_values(work, 2 * keys + (warp - key_warps) * kWarpChannels + channel, first, end);
    }
}

void start_convolve(Queue& queue, const Convolve& work) {
    const op::DeltaShape& shape = work.args.shape;
    const auto groups = [](std::int64_t n, std::int64_t each) { return (n + each - 1) / each; };
    const std::int64_t warps =
        groups(shape.key_heads * std::int64_t{shape.key_dim}, kWarpChannels) +
        groups(shape.value_width(), kWarpChannels);
    launch(queue,
           {dim3(static_cast<unsigned>(groups(warps, kWarps)),
                 static_cast<unsigned>(groups(work.u.rows, kRowsTogether))),
            kThreads},
           convolve, work);
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
        const float log_decay = args.decay_rate[h] * softplus(decay.data[i] + args.decay_bias[h]);
        const float alpha = expf(log_decay);
        beta.data[i] = b;
        decay.data[i] = alpha;
        const float both =
            match.row(i / beta.cols)[delta_key_head(args.shape, args.order, static_cast<int>(h))];
        reinterpret_cast<float4*>(gates.data)[i] = make_float4(alpha, b, both, log_decay);
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
        for (int i = 4 * lane; i < dv; i += 4 * kWarp) {
            squares += dot_four(four_at(o + i), four_at(o + i));
        }
        const float mean = warp_sum(squares) / static_cast<float>(dv);
        const float inverse = 1.0f / sqrtf(mean + work.args.epsilon);
        for (int i = 4 * lane; i < dv; i += 4 * kWarp) {
            const float4 own = scaled(four_at(o + i), inverse);
            const float4 gain = four_at(work.args.norm + i);
            const float4 gate = four_at(z + i);
            const uint2 four = make_uint2(
                bf16_pair(own.x * gain.x * sigmoid(gate.x), own.y * gain.y * sigmoid(gate.y)),
                bf16_pair(own.z * gain.z * sigmoid(gate.z), own.w * gain.w * sigmoid(gate.w)));
            *reinterpret_cast<uint2*>(out + i) = four;
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
    if (!runs_delta(shape) || shape.kernel != kTaps || !in_fours(args.conv) ||
        !in_fours(args.norm) || !in_fours(args.from.history)) {
        return cuda::delta_net(args, queue);
    }
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
    start_convolve(own, {args, u, c, units, match});
    for_each(own, beta.size(), Gates{args, beta, decay, match, gates});
    const DeltaRows made{units, {c.data + 2 * keys, rows, shape.value_width()}, c.cols, gates, o};
    if (args.form == op::DeltaForm::chunked) {
        run_delta_chunks(own, args, made);
    } else {
        run_delta(own, args, made);
    }
    launch(own, {each_row, kThreads}, gate_heads, Gated{args, o, z, heads});
    PromptInput read(own, heads, shape.value_width());
    multiply(read, args.out, args.y);
    advance_history(own, args.from.history, {args.to.history, shape.kernel - 1, shape.channels()},
                    u, rows);
}

}  // namespace strata::cuda::prompt
