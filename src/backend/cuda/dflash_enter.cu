// Bounded by its own latency: all that comes before the first products of a sublayer, in one
// launch. A block has 32 channels, so those rows of the convolution's projection that they need,
// which it asks for before it waits. It multiplies them with h as the gain has it; what the norm
// divides by is put to the sums.
#include <algorithm>

#include "backend/cuda/dflash.h"
#include "backend/cuda/draft_rows.cuh"
#include "backend/cuda/eight.cuh"
#include "backend/cuda/fours.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/staging.cuh"

namespace strata::cuda {
namespace {

constexpr int kTaps = 2;
constexpr int kGroup = 16;     // channels that share a delta
constexpr int kChannels = 32;  // of a block
constexpr int kGroups = kChannels / kGroup;
constexpr int kDeltas = 2 * kTaps * kGroups;  // of a row, a block: (side, tap, group)
constexpr int kRowsMost = 8;
constexpr int kFour = 4;
constexpr int kThreadsMost = 640;  // four columns each, where there are 2,560
constexpr int kColsLeast = 256;
constexpr int kColsStep = kFour * kWarp;
constexpr int kWarpColumns = 32;  // which a warp multiplies eight rows of the projection with
// Between rows of the projection, so that lanes with two of them read from all banks.
constexpr int kBytesBetween = 64;
static_assert(kDeltas == kWarp / kFour && kDeltas == kRowsMost);

struct Enter {
    DflashSteps steps;
    op::Gain norm;
    const float* base;
    const std::byte* projection;
    DraftRows to;
    Ahead ahead;

    __host__ __device__ int cols() const { return to.cols; }
    __host__ __device__ int rows() const { return to.rows; }
    __host__ __device__ int weight_stride() const { return cols() * 2 + kBytesBetween; }
    __host__ __device__ int weight_bytes() const { return kDeltas * weight_stride(); }
    // Where delta d of the block stands among a row's.
    __device__ int delta_at(int d) const {
        return d / kGroups * (cols() / kGroup) + static_cast<int>(blockIdx.x) * kGroups +
               d % kGroups;
    }
    // The rows of h times the gain, in shared memory.
    __device__ float* row(int t) const {
        return reinterpret_cast<float*>(shared_bytes() + weight_bytes()) + t * cols();
    }
};

__device__ inline int warps() { return static_cast<int>(blockDim.x) / kWarp; }

__device__ inline float4 four_early(const float* from) {
    const auto bits = load_early<uint4>(from);
    return make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
                       __uint_as_float(bits.w));
}

// `taps` gets what side 0 of the base has for the block's channels.
__device__ void ask_for_weights(const Enter& enter, float (&taps)[kTaps][kChannels]) {
    const int pieces = enter.cols() / kEight;
    for (int i = static_cast<int>(threadIdx.x); i < kDeltas * pieces;
         i += static_cast<int>(blockDim.x)) {
        const int d = i / pieces;
        copy_shared(shared_bytes() + d * enter.weight_stride() + i % pieces * 16,
                    enter.projection + std::int64_t{enter.delta_at(d)} * enter.cols() * 2 +
                        i % pieces * 16);
    }
    constexpr int kFours = kChannels / kFour;  // of a tap
    const auto thread = static_cast<int>(threadIdx.x);
    if (thread >= kTaps * kFours) return;
    const int t = thread / kFours;
    const int channel = thread % kFours * kFour;
    const float* from =
        enter.base + t * enter.cols() + static_cast<int>(blockIdx.x) * kChannels + channel;
    copy_shared(reinterpret_cast<std::byte*>(&taps[t][channel]),
                reinterpret_cast<const std::byte*>(from));
}

// Rows of h times the gain, and what each row's norm divides by.
__device__ void bring_rows(const Enter& enter, float4 gain, float* inverse) {
    const int fours = enter.cols() / kFour;
    const auto step = static_cast<int>(blockDim.x);
    for (int at = static_cast<int>(threadIdx.x); at < fours; at += step) {
#pragma unroll 4
        for (int t = 0; t < enter.rows(); ++t) {
            const float4 h = four_at(enter.steps.hidden.row(t) + at * kFour);
            reinterpret_cast<float4*>(enter.row(t))[at] =
                make_float4(h.x * gain.x, h.y * gain.y, h.z * gain.z, h.w * gain.w);
        }
        if (at + step < fours) gain = four_at(enter.norm + (at + step) * kFour);
    }
    const MatrixView<float>& squares = enter.steps.squares;
    for (int t = own_warp(); t < enter.rows(); t += warps()) {
        float sum = 0.0f;
        for (std::int64_t s = own_lane(); s < squares.cols; s += kWarp) sum += squares.row(t)[s];
        sum = warp_sum(sum);
        if (own_lane() == 0) inverse[t] = inverse_rms(sum, enter.cols(), enter.steps.args.epsilon);
    }
}

// parts[d][t] = the warp's part of delta d of row t: lanes of a quad share row d of the projection.
__device__ void multiply(const Enter& enter, float (&parts)[kDeltas][kRowsMost]) {
    const int quarter = own_lane() % kFour;
    const int d = own_lane() / kFour;
    const std::byte* weights = shared_bytes() + d * enter.weight_stride();
    float sums[kRowsMost] = {};
#pragma unroll 1
    for (int begin = own_warp() * kWarpColumns; begin < enter.cols();
         begin += warps() * kWarpColumns) {
        const int column = begin + quarter * kEight;
        float weight[kEight];
        EightHalves<true>{*reinterpret_cast<const uint4*>(weights + column * 2)}.unpack(weight);
#pragma unroll
        for (int t = 0; t < kRowsMost; ++t) {
            if (t >= enter.rows()) break;
            float x[kEight];
            load_eight(enter.row(t) + column, x);
#pragma unroll
            for (int i = 0; i < kEight; ++i) sums[t] = __fmaf_rn(weight[i], x[i], sums[t]);
        }
    }
#pragma unroll
    for (int t = 0; t < kRowsMost; ++t) {
        float sum = sums[t];
        sum += __shfl_xor_sync(kAllLanes, sum, 1);
        sum += __shfl_xor_sync(kAllLanes, sum, 2);
        if (quarter == t % kFour) parts[d][t] = sum;
    }
}

// The block's channels of C(0, a), by a warp: a row a quad.
__device__ void convolve(const Enter& enter, const float (&taps)[kTaps][kChannels],
                         const float (&delta)[kDeltas][kRowsMost], const float* inverse) {
    const int i = own_lane() / kFour;
    const int own = own_lane() % kFour * kEight;
    const int channel = static_cast<int>(blockIdx.x) * kChannels + own;
    float values[kEight] = {};
#pragma unroll
    for (int t = 0; t < kTaps; ++t) {
        if (i >= enter.rows() || t > i) break;
        const float change = delta[t * kGroups + own / kGroup][i];
        const float* from = enter.row(i - t) + channel;
#pragma unroll
        for (int c = 0; c < kEight; ++c) {
            values[c] = __fmaf_rn(taps[t][own + c] + change, from[c] * inverse[i - t], values[c]);
        }
    }
    store_eight(enter.to, i, i < enter.rows() ? channel : enter.cols(), values);
}

// Block (channels).
__global__ void __launch_bounds__(kThreadsMost) enter_rows(const __grid_constant__ Enter enter) {
    __shared__ float parts[kThreadsMost / kWarp][kDeltas][kRowsMost];
    __shared__ float deltas[kDeltas][kRowsMost];
    __shared__ float inverse[kRowsMost];
    alignas(16) __shared__ float taps[kTaps][kChannels];
    const auto thread = static_cast<int>(threadIdx.x);
    ask_for_weights(enter, taps);
    const float4 gain = four_early(enter.norm + thread * kFour);
    follow_earlier_kernels();
    enter.ahead.ask();
    bring_rows(enter, gain, inverse);
    wait_shared();
    __syncthreads();
    multiply(enter, parts[own_warp()]);
    __syncthreads();
    const int d = thread / kRowsMost;
    const int t = thread % kRowsMost;
    if (d < kDeltas && t < enter.rows()) {
        float sum = parts[0][d][t];
        for (int w = 1; w < warps(); ++w) sum += parts[w][d][t];
        sum *= inverse[t];
        deltas[d][t] = sum;
        if (d >= kDeltas / 2) enter.steps.delta.row(t)[enter.delta_at(d)] = sum;
    }
    __syncthreads();
    if (own_warp() == 0) convolve(enter, taps, deltas, inverse);
}

std::size_t shared_of(const Enter& enter) {
    return static_cast<std::size_t>(enter.weight_bytes()) +
           static_cast<std::size_t>(enter.rows()) * static_cast<std::size_t>(enter.cols()) *
               sizeof(float);
}

Enter make_enter(const DflashSteps& steps, op::Gain norm, const op::DflashConv& conv,
                 const DraftRows& to) {
    return {.steps = steps,
            .norm = norm,
            .base = conv.base,
            .projection = conv.projection.data,
            .to = to,
            .ahead = {}};
}

}  // namespace

bool enters_at_once(const Queue& queue, const DflashSteps& steps, op::Gain norm,
                    const op::DflashConv& conv, const DraftRows& to) {
    const op::Weight& projection = conv.projection;
    const bool laid_out = projection.type == quant::Type::bf16 && reads_as_eights(projection) &&
                          in_fours(norm) && in_fours(conv.base);
    const bool rounded = to.form == RowForm::rounded;
    return laid_out && steps.args.taps == kTaps && steps.args.group == kGroup &&
           to.rows <= kRowsMost && to.cols >= kColsLeast && to.cols % kColsStep == 0 &&
           (!rounded || to.group == kChannels) &&
           shared_of(make_enter(steps, norm, conv, to)) + kSharedBytesFixed <=
               queue.shared_bytes_max();
}

void enter_at_once(Queue& queue, const DflashSteps& steps, op::Gain norm,
                   const op::DflashConv& conv, std::span<const Product> products,
                   const DraftRows& to) {
    Enter enter = make_enter(steps, norm, conv, to);
    enter.ahead = Ahead::of(products);
    const auto threads = static_cast<unsigned>(std::min(to.cols / kFour, kThreadsMost));
    launch_dependent(queue,
                     {dim3(static_cast<unsigned>(to.cols / kChannels)), threads, shared_of(enter)},
                     enter_rows, enter);
}

}  // namespace strata::cuda
