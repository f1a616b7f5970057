// Bound by memory: the residual is read and written once, its norms written once. A block takes
// row after row, the next one on its way while one is summed, and keeps the gains in registers and
// the weights of the injects in shared memory.
#include "backend/cuda/prompt_norm.h"

#include <algorithm>

#include "backend/cuda/fours.cuh"
#include "backend/cuda/intrinsics.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/tensor_core.cuh"
#include "base/check.h"

namespace strata::cuda::prompt {
namespace {

constexpr int kStreams = kNormedStreamsMax;

// A block a row, for widths that the other kernel has no place for.
constexpr int kThreads = 256;
__global__ void __launch_bounds__(kThreads) norm_row(op::StreamRead args, Normed out) {
    __shared__ float sums[kThreads / kWarp];
    auto* held = reinterpret_cast<float*>(shared_bytes());
    const std::int64_t t = blockIdx.x;
    const std::int64_t width = args.x.cols;
    float* residual = args.residual.row(t);
    float inverse[kStreams] = {};
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
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
    float inject[kStreams] = {};
    const std::int64_t all = args.streams * width;
    for (std::int64_t c = 2 * threadIdx.x; c < out.rows.stride; c += 2 * kThreads) {
        float v[2];
        for (int i = 0; i < 2; ++i) {
            const std::int64_t at = c + i;
            float scale = inverse[0];
#pragma unroll
            for (int s = 1; s < kStreams; ++s) scale = at >= s * width ? inverse[s] : scale;
            v[i] = at < all ? held[at] * scale * args.norm[at] : 0.0f;
        }
        const std::uint32_t pair = bf16_pair(v[0], v[1]);
        *reinterpret_cast<std::uint32_t*>(out.rows.row(t) + c) = pair;
        if (out.inject_weight.data == nullptr) continue;
#pragma unroll
        for (int s = 0; s < kStreams; ++s) {
            if (s >= args.streams) break;
            const auto weight =
                *reinterpret_cast<const std::uint32_t*>(out.inject_weight.row(s) + c);
            inject[s] = detail::add_products<bfloat_to_float>(pair, weight, inject[s]);
        }
    }
    if (out.inject_weight.data == nullptr) return;
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
        if (s >= args.streams) break;
        const float sum = block_sum<kThreads>(inject[s], sums) * out.inject_factor;
        if (threadIdx.x == 0) {
            args.inject.row(t)[s] = 2.0f * sigmoid(sum / static_cast<float>(args.streams));
        }
    }
}

constexpr int kWideThreads = 512;
constexpr int kWideWarps = kWideThreads / kWarp;
constexpr int kFours = 5;  // that a thread has of a row
constexpr std::int64_t kWideColumns = 4 * kFours * kWideThreads;

// What a thread has of a row before the write-back.
struct Fours {
    float4 residual[kFours];
    float4 block[kFours];
    float share[kFours];
};

class Wide {
  public:
    __device__ Wide(const op::StreamRead& args, const Normed& out)
        : args_(args), out_(out), width_(static_cast<int>(args.x.cols)) {
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            const int c = column(i);
            stream_[i] = c / width_;  // S and more: none
            norm_[i] = there(i) ? *reinterpret_cast<const float4*>(args.norm + c) : float4{};
        }
    }
    __device__ void load(std::int64_t t, Fours& to) const {
        const bool folds = !args_.block_out.empty();
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            to.residual[i] = to.block[i] = float4{};
            to.share[i] = 0.0f;
            if (!there(i)) continue;
            to.residual[i] = *reinterpret_cast<const float4*>(args_.residual.row(t) + column(i));
            if (!folds) continue;
            const float* block = args_.block_out.row(t) + column(i) - stream_[i] * width_;
            to.block[i] = *reinterpret_cast<const float4*>(block);
            to.share[i] = args_.block_inject.row(t)[stream_[i]];
        }
    }
    // Writes back; `squares` of what a thread has of each stream.
    __device__ void fold(std::int64_t t, Fours& row, float (&squares)[kStreams]) const {
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            float4& v = row.residual[i];
            if (there(i) && !args_.block_out.empty()) {
                v.x += row.share[i] * row.block[i].x;
                v.y += row.share[i] * row.block[i].y;
                v.z += row.share[i] * row.block[i].z;
                v.w += row.share[i] * row.block[i].w;
                *reinterpret_cast<float4*>(args_.residual.row(t) + column(i)) = v;
            }
            const float sum =
                __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, v.x * v.x)));
#pragma unroll
            for (int s = 0; s < kStreams; ++s) squares[s] += stream_[i] == s ? sum : 0.0f;
        }
    }
    // Writes the norms; `injects` of what a thread has of the row.
    __device__ void norm(std::int64_t t, const Fours& row, const float (&inverse)[kStreams],
                         const uint2* weights, float (&injects)[kStreams]) const {
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            if (column(i) >= out_.rows.stride) continue;
            float scale = inverse[0];
#pragma unroll
            for (int s = 1; s < kStreams; ++s) scale = stream_[i] == s ? inverse[s] : scale;
            const float4& v = row.residual[i];
            const uint2 four =
                make_uint2(bf16_pair(v.x * scale * norm_[i].x, v.y * scale * norm_[i].y),
                           bf16_pair(v.z * scale * norm_[i].z, v.w * scale * norm_[i].w));
            *reinterpret_cast<uint2*>(out_.rows.row(t) + column(i)) = four;
            if (out_.inject_weight.data == nullptr) continue;
#pragma unroll
            for (int s = 0; s < kStreams; ++s) {
                if (s >= args_.streams) break;
                const uint2 weight = weights[(s * kWideColumns + column(i)) / 4];
                injects[s] = detail::add_products<bfloat_to_float>(four.x, weight.x, injects[s]);
                injects[s] = detail::add_products<bfloat_to_float>(four.y, weight.y, injects[s]);
            }
        }
    }

  private:
    __device__ static int column(int i) {
        return 4 * (static_cast<int>(threadIdx.x) + i * kWideThreads);
    }
    __device__ bool there(int i) const { return stream_[i] < args_.streams; }

    const op::StreamRead& args_;
    const Normed& out_;
    int width_;
    int stream_[kFours];
    float4 norm_[kFours];
};

// What the lanes of each warp have of each stream's sum.
using WarpSums = float[kWideWarps][kStreams];

__device__ void share_sums(const float (&own)[kStreams], WarpSums& sums) {
    float all[kStreams];
#pragma unroll
    for (int s = 0; s < kStreams; ++s) all[s] = warp_sum(own[s]);
    if (threadIdx.x % kWarp == 0) {
#pragma unroll
        for (int s = 0; s < kStreams; ++s) sums[threadIdx.x / kWarp][s] = all[s];
    }
}
__device__ float add_sums(const WarpSums& sums, int s) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kWideWarps; ++i) sum += sums[i][s];
    return sum;
}

__global__ void __launch_bounds__(kWideThreads) norm_rows(op::StreamRead args, Normed out) {
    __shared__ WarpSums squares;
    __shared__ WarpSums injects;
    __shared__ float inverse[kStreams];
    const auto thread = static_cast<int>(threadIdx.x);
    auto* weights = reinterpret_cast<uint2*>(shared_bytes());
    if (out.inject_weight.data != nullptr) {
        for (int s = 0; s < args.streams; ++s) {
            const auto* from = reinterpret_cast<const uint2*>(out.inject_weight.row(s));
            for (int i = thread; i < out.rows.stride / 4; i += kWideThreads) {
                weights[s * (kWideColumns / 4) + i] = from[i];
            }
        }
    }
    const Wide wide(args, out);
    Fours next;
    wide.load(blockIdx.x, next);
    for (std::int64_t t = blockIdx.x; t < args.x.rows; t += gridDim.x) {
        Fours row = next;
        float own[kStreams] = {};
        wide.fold(t, row, own);
        if (t + gridDim.x < args.x.rows) wide.load(t + gridDim.x, next);
        share_sums(own, squares);
        __syncthreads();
        if (thread < args.streams) {
            const float mean = add_sums(squares, thread) / static_cast<float>(args.x.cols);
            inverse[thread] = 1.0f / sqrtf(mean + args.epsilon);
            out.inverse.row(t)[thread] = inverse[thread];
        }
        __syncthreads();
        float scale[kStreams];
        float inject[kStreams] = {};
#pragma unroll
        for (int s = 0; s < kStreams; ++s) scale[s] = inverse[s];
        wide.norm(t, row, scale, weights, inject);
        if (out.inject_weight.data == nullptr) continue;
        share_sums(inject, injects);
        __syncthreads();
        if (thread < args.streams) {
            const float sum = add_sums(injects, thread) * out.inject_factor;
            args.inject.row(t)[thread] = 2.0f * sigmoid(sum / static_cast<float>(args.streams));
        }
    }
}

}  // namespace

Normed norm_streams(Queue& queue, const op::StreamRead& args) {
    STRATA_CHECK(args.streams <= kStreams);
    const std::int64_t rows = args.x.rows;
    const std::int64_t all = args.streams * args.x.cols;
    Normed normed{take_rounded(queue, rows, all), queue.matrix(rows, args.streams), {}, 1};
    if (!args.inject_weight.empty()) {
        normed.inject_weight = rounded_matrix(queue, args.inject_weight);
        normed.inject_factor = args.inject_weight.factor;
    }
    const bool wide = args.x.cols % 4 == 0 && normed.rows.stride <= kWideColumns &&
                      in_fours(args.norm) && in_fours(args.residual.data) &&
                      in_fours(args.block_out.data);
    if (wide) {
        const auto blocks = std::min<std::int64_t>(rows, queue.multiprocessors());
        const bool injects = normed.inject_weight.data != nullptr;
        const std::size_t shared = injects ? std::size_t{2} * kStreams * kWideColumns : 0;
        launch(queue, {dim3(static_cast<unsigned>(blocks)), kWideThreads, shared}, norm_rows, args,
               normed);
    } else {
        launch(queue,
               {dim3(static_cast<unsigned>(rows)), kThreads,
                static_cast<std::size_t>(all) * sizeof(float)},
               norm_row, args, normed);
    }
    return normed;
}

}  // namespace strata::cuda::prompt
