// Bounded by reading the matrices, all at once, before earlier kernels have ended. A block has a
// few columns of y, a warp of it one expert's rows of them, the last warp the shared one's.
#include "backend/cuda/experts_down_two.h"

#include "backend/cuda/launch.cuh"
#include "backend/cuda/row_products.cuh"
#include "backend/cuda/staging.cuh"

namespace strata::cuda {
namespace {

constexpr int kWarpsMax = 16;
constexpr int kRowLanes = 4;
constexpr int kRows = kWarp / kRowLanes;  // of a block
constexpr int kTwoBytes = 9;              // of 32 columns of two bits
constexpr int kEightBytes = 34;           // and of eight

struct DownTwo {
    const std::byte* const* at = nullptr;
    const float* factors = nullptr;
    const std::int32_t* chosen = nullptr;
    const int* place = nullptr;
    const std::byte* made = nullptr;  // turned
    int units = 0;
    int active = 0;
    const float* share = nullptr;
    const float* scale = nullptr;
    const std::byte* shared = nullptr;
    const std::byte* shared_made = nullptr;
    int shared_units = 0;
    float shared_factor = 1;
    float* y = nullptr;
    std::int64_t y_stride = 0;
};

// Of a warp: products and barrier, its hidden row, its rows of weights.
constexpr int kProductsBytes = kRows * 4;
constexpr int kHeadBytes = kProductsBytes + kStageAlign;
__host__ __device__ constexpr int warp_bytes(int units, int unit_bytes) {
    return kHeadBytes + static_cast<int>(operand_bytes(kUnit, units * kUnit)) +
           kRows * units * unit_bytes;
}

__device__ __forceinline__ void take_row(const std::byte* from, int units, std::byte* to) {
    const int count = static_cast<int>(operand_bytes(kUnit, units * kUnit)) / 16;
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x) % kWarp; i < count; i += kWarp) {
        reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
}

// The lane's part of a product with two bits: codes are 0 to 3, each one too large, which the sum
// that comes with the hidden row takes away.
__device__ __forceinline__ float multiply_two(const std::byte* row, const std::byte* x, int units) {
    constexpr unsigned kFields = 0x03030303u;
    float sum = 0.0f;
#pragma unroll 1
    for (int unit = static_cast<int>(threadIdx.x) % kRowLanes; unit < units; unit += kRowLanes) {
        const auto* words = reinterpret_cast<const unsigned*>(row + unit * 8);
        const float scale =
            half_to_float(*reinterpret_cast<const std::uint16_t*>(row + units * 8 + unit / 2 * 2));
        const RoundedRow own{x, units};
        int codes[8];
        own.codes(unit, codes);
        int bits = own.sums(unit);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const unsigned fields = words[i / 4] >> 2 * (i % 4) & kFields;
            bits = __dp4a(static_cast<int>(fields), codes[i], bits);
        }
        sum = __fmaf_rn(float_of_sum(bits), scale * own.scale(unit), sum);
    }
    return sum;
}

__device__ __forceinline__ float multiply_eight(const std::byte* row, const std::byte* x,
                                                int units) {
    using Own = BlockUnits<quant::Type::q8_0>;
    float sum = 0.0f;
#pragma unroll 1
    for (int unit = static_cast<int>(threadIdx.x) % kRowLanes; unit < units; unit += kRowLanes) {
        typename Own::Raw raw;
        Own::load(StagedPlanes<quant::Type::q8_0>{row, units, {4}}, unit, raw);
        Unit weight;
        Own::decode(raw, unit, nullptr, weight);
        const RoundedRow own{x, units};
        int codes[8];
        own.codes(unit, codes);
        sum = add_unit<Own>(weight, codes, 0, own.scale(unit), sum);
    }
    return sum;
}

// Block (rows of the matrices, row of y).
__global__ void __launch_bounds__(kWarpsMax* kWarp)
    down_two_kernel(const __grid_constant__ DownTwo args) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int t = static_cast<int>(blockIdx.y);
    const std::int64_t first = std::int64_t{blockIdx.x} * kRows;
    const bool routed = warp < args.active;
    const int routed_bytes = warp_bytes(args.units, kTwoBytes);
    const int units = routed ? args.units : args.shared_units;
    const int row_bytes = units * (routed ? kTwoBytes : kEightBytes);
    std::byte* head = shared_bytes() + warp * routed_bytes;
    std::byte* x = head + kHeadBytes;
    Stage stage{.to = x + operand_bytes(kUnit, units * kUnit),
                .barrier = reinterpret_cast<std::uint64_t*>(head + kProductsBytes)};
    // The routing is older than the kernel before.
    const std::byte* weight = args.shared;
    const std::byte* made = args.shared_made;
    float factor = args.shared_factor;
    float share = 1.0f;
    int row = t;
    if (routed) {
        const int at = t * args.active + warp;
        const int expert = args.chosen[at];
        row = args.place[at];
        share = args.share[at];
        weight = args.at[expert];
        made = args.made;
        factor = args.factors == nullptr ? 1.0f : args.factors[expert];
    }
    stage.prepare();
    stage.begin(weight + first * row_bytes, kRows * row_bytes);
    if (!routed) share = sigmoid(args.scale[t]);
    follow_earlier_kernels();
    take_row(made + row * operand_bytes(kUnit, units * kUnit), units, x);
    __syncwarp();
    stage.wait();
    const std::byte* own = stage.to + lane / kRowLanes * row_bytes;
    float sum = routed ? multiply_two(own, x, units) : multiply_eight(own, x, units);
#pragma unroll
    for (int by = kRowLanes / 2; by > 0; by /= 2) sum += __shfl_xor_sync(kAllLanes, sum, by);
    if (factor != 1.0f) sum *= factor;
    if (lane % kRowLanes == 0) reinterpret_cast<float*>(head)[lane / kRowLanes] = share * sum;
    __syncthreads();
    if (threadIdx.x >= kRows) return;
    float all = 0.0f;
#pragma unroll 4
    for (int s = 0; s <= args.active; ++s) {
        all += reinterpret_cast<const float*>(shared_bytes() + s * routed_bytes)[threadIdx.x];
    }
    args.y[t * args.y_stride + first + threadIdx.x] = all;
}

std::size_t block_bytes(const Contraction& args) {
    return static_cast<std::size_t>(args.active * warp_bytes(args.routed.cols / kUnit, kTwoBytes) +
                                    warp_bytes(args.shared.cols / kUnit, kEightBytes));
}

}  // namespace

bool has_down_two(const Contraction& args) {
    // Rows in shared memory are read by words.
    return args.routed.type == quant::Type::q2_0 && args.shared.type == quant::Type::q8_0 &&
           args.routed.cols % 128 == 0 && args.shared.cols % 64 == 0 && args.y.cols % kRows == 0 &&
           args.active < kWarpsMax && block_bytes(args) <= kSharedBytesUnasked;
}

void launch_down_two(Queue& queue, const Contraction& args) {
    const DownTwo all{.at = args.routed.at,
                      .factors = args.routed.factors,
                      .chosen = args.chosen,
                      .place = args.place,
                      .made = args.made,
                      .units = args.routed.cols / kUnit,
                      .active = args.active,
                      .share = args.share,
                      .scale = args.scale,
                      .shared = args.shared.weight,
                      .shared_made = args.shared_made,
                      .shared_units = args.shared.cols / kUnit,
                      .shared_factor = args.shared.factor,
                      .y = args.y.data,
                      .y_stride = args.y.cols};
    launch(queue,
           {.blocks =
                dim3(static_cast<unsigned>(args.y.cols / kRows), static_cast<unsigned>(args.rows)),
            .threads = static_cast<unsigned>((args.active + 1) * kWarp),
            .shared_bytes = block_bytes(args),
            .dependent = true},
           down_two_kernel, all);
}

}  // namespace strata::cuda
