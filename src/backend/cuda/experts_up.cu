// Bounded by reading the matrices, all at once. A block makes whole groups of hidden values, so
// that it rounds them too: of one expert, whose rows come to shared memory, or of the shared one,
// whose rows are so wide that registers take them. Sums are those of few_rows.cuh, bit for bit.
#include "backend/cuda/experts_up.h"

#include <algorithm>

#include "backend/cuda/iq3_book.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/row_products.cuh"
#include "backend/cuda/staging.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kWarp;
constexpr int kWarpHidden = 4;                        // of an expert
constexpr int kBlockHidden = kWarps * kWarpHidden;    // a multiple of every group
constexpr int kSharedHidden = 2;                      // of the shared one
constexpr int kSharedBlock = kWarps * kSharedHidden;  // likewise of its group
constexpr int kRowLanes = 16;                         // that share a row of an expert
constexpr int kTileMost = 4;                          // rows of x that the shared rows take at once
constexpr int kIq3Bytes = 98;                         // of 256 columns

// What both kinds of matrices have.
struct Side {
    const std::byte* x = nullptr;  // rounded rows
    std::byte* to = nullptr;       // rounded hidden rows
    int units = 0;                 // of a row of x
    int hidden = 0;
    int group = 0;        // of `to`
    bool turned = false;  // likewise

    __device__ const std::byte* x_row(int t) const {
        return x + t * static_cast<int>(operand_bytes(kUnit, units * kUnit));
    }
    // Row `t` of `to` from the eight of each lane, the first at column `from`; all of a warp.
    __device__ void round(const float* values, int from, int count, int t) const {
        const int lane = static_cast<int>(threadIdx.x) % kWarp;
        float eight[kPiece] = {};
        if (lane * kPiece < count) load_eight(values + lane * kPiece, eight);
        const auto store = [&]<bool kTurned>() {
            round_eight<kTurned>(eight, from + lane * kPiece, from + count, hidden / kUnit, group,
                                 to + t * operand_bytes(group, hidden));
        };
        return turned ? store.template operator()<true>() : store.template operator()<false>();
    }
};

struct Up {
    Side routed;
    const int* used = nullptr;
    const int* expert = nullptr;
    const int* first = nullptr;
    const int* x_row = nullptr;
    const std::byte* const* gate_at = nullptr;
    const std::byte* const* up_at = nullptr;
    const float* gate_factors = nullptr;
    const float* up_factors = nullptr;

    Side shared;
    const std::byte* shared_gate = nullptr;
    const std::byte* shared_up = nullptr;
    float shared_gate_factor = 1;
    float shared_up_factor = 1;
    int rows = 0;           // of x
    int shared_blocks = 0;  // the first blocks
};

__device__ __forceinline__ float hidden_value(float gate, float gate_factor, float up,
                                              float up_factor) {
    if (gate_factor != 1.0f) gate *= gate_factor;
    if (up_factor != 1.0f) up *= up_factor;
    return silu(gate) * up;
}

// What of a block's shared memory is whose: codebook, hidden values, barriers, a row of x and its
// negative codes, rows.
constexpr int kHiddenAt = kIq3BookBytes;
constexpr int kBarriersAt = kHiddenAt + kTileMost * kBlockHidden * 4;
constexpr int kXAt = kBarriersAt + 2 * kWarps * kStageAlign;
__host__ __device__ constexpr int x_bytes(int units) {
    return static_cast<int>(operand_bytes(kUnit, units * kUnit));
}
__host__ __device__ constexpr int stages_at(int units) {
    return kXAt + x_bytes(units) + units * kUnit;
}

__device__ __forceinline__ float* hidden_of_block() {
    return reinterpret_cast<float*>(shared_bytes() + kHiddenAt);
}

// Bytes of rows where they are brought to.
__host__ __device__ constexpr int staged(int bytes) {
    return (bytes + kStageAlign - 1) / kStageAlign * kStageAlign;
}

struct ExpertRows {
    const std::byte* gate;  // kWarpHidden rows each, in shared memory
    const std::byte* up;
    float gate_factor;
    float up_factor;
};

// Of a row of x in shared memory, behind which its negative codes lie.
__device__ __forceinline__ SignedUnit signed_unit(const std::byte* x_at, int units, int unit) {
    const auto* codes = reinterpret_cast<const uint4*>(x_at);
    const auto* negative = reinterpret_cast<const uint4*>(x_at + x_bytes(units));
    const uint4 four[4] = {codes[unit], codes[units + unit], negative[unit],
                           negative[units + unit]};
    SignedUnit x;
    for (int i = 0; i < 2; ++i) {
        x.codes[4 * i] = four[i].x, x.codes[4 * i + 1] = four[i].y;
        x.codes[4 * i + 2] = four[i].z, x.codes[4 * i + 3] = four[i].w;
        x.negative[4 * i] = four[2 + i].x, x.negative[4 * i + 1] = four[2 + i].y;
        x.negative[4 * i + 2] = four[2 + i].z, x.negative[4 * i + 3] = four[2 + i].w;
    }
    return x;
}

// The warp's hidden values of one row of x: each half of its lanes has every other one.
__device__ __forceinline__ void make_hidden(const ExpertRows& rows, int units, float* to) {
    constexpr int kPairs = kWarpHidden / 2;
    const int row_bytes = units / 8 * kIq3Bytes;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int own = lane % kRowLanes;
    const int half = lane / kRowLanes;
    const SharedAt book = shared_at(shared_bytes());
    const std::byte* x_at = shared_bytes() + kXAt;
    const SharedAt at[2] = {shared_at(rows.gate + half * row_bytes),
                            shared_at(rows.up + half * row_bytes)};
    float sums[kPairs][2] = {};
#pragma unroll 1
    for (int unit = own; unit < units; unit += kRowLanes) {
        const SignedUnit x = signed_unit(x_at, units, unit);
        const float a = reinterpret_cast<const float*>(x_at)[8 * units + unit];
        const int numbers = unit * 8;
        const int rest = units * 8 + unit * 4;
        const int scale = units * 12 + unit / 8 * 2;
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const SharedAt row = at[j] + i * 2 * row_bytes;
                sums[i][j] =
                    add_iq3(book, {row + numbers, row + rest, row + scale}, x, a, sums[i][j]);
            }
        }
    }
#pragma unroll
    for (int by = kRowLanes / 2; by > 0; by /= 2) {
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
            sums[i][0] += __shfl_xor_sync(kAllLanes, sums[i][0], by);
            sums[i][1] += __shfl_xor_sync(kAllLanes, sums[i][1], by);
        }
    }
    static_assert(kPairs == 2);
    if (own >= kPairs) return;
    to[own * 2 + half] = hidden_value(own == 0 ? sums[0][0] : sums[1][0], rows.gate_factor,
                                      own == 0 ? sums[0][1] : sums[1][1], rows.up_factor);
}

__device__ __forceinline__ uint4 negated(const uint4& codes) {
    return {__vsub4(0, codes.x), __vsub4(0, codes.y), __vsub4(0, codes.z), __vsub4(0, codes.w)};
}

// A block of one expert.
__device__ __forceinline__ void run_routed(const Up& args, int block) {
    const Side& side = args.routed;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int row_bytes = side.units / 8 * kIq3Bytes;
    const int bytes = kWarpHidden * row_bytes;
    std::byte* stages = shared_bytes() + stages_at(side.units);
    auto* barriers =
        reinterpret_cast<std::uint64_t*>(shared_bytes() + kBarriersAt + 2 * warp * kStageAlign);
    Stage gate{.to = stages + 2 * warp * staged(bytes), .barrier = barriers};
    Stage up{.to = gate.to + staged(bytes), .barrier = barriers + 2};
    gate.prepare();
    up.prepare();
    fill_iq3_book(shared_bytes());
    follow_earlier_kernels();
    const int across = side.hidden / kBlockHidden;
    const int segment = block / across;
    const int used = *args.used;
    const int expert = args.expert[segment];
    const int begin = args.first[segment];
    const int end = args.first[segment + 1];
    if (segment >= used) return;
    const int from = block % across * kBlockHidden;
    const std::int64_t at = std::int64_t{from + warp * kWarpHidden} * row_bytes;
    gate.begin(args.gate_at[expert] + at, bytes);
    up.begin(args.up_at[expert] + at, bytes);
    const ExpertRows rows{gate.to, up.to,
                          args.gate_factors == nullptr ? 1.0f : args.gate_factors[expert],
                          args.up_factors == nullptr ? 1.0f : args.up_factors[expert]};
    auto* x = reinterpret_cast<uint4*>(shared_bytes() + kXAt);
    auto* negative = x + x_bytes(side.units) / 16;
#pragma unroll 1
    for (int member = begin; member < end; ++member) {
        const auto* x_from = reinterpret_cast<const uint4*>(side.x_row(args.x_row[member]));
#pragma unroll 1
        for (int i = static_cast<int>(threadIdx.x); i < x_bytes(side.units) / 16; i += kThreads) {
            x[i] = x_from[i];
            if (i < side.units * kUnit / 16) negative[i] = negated(x_from[i]);
        }
        __syncthreads();
        if (member == begin) {
            gate.wait();
            up.wait();
        }
        make_hidden(rows, side.units, hidden_of_block() + warp * kWarpHidden);
        __syncthreads();
        if (warp == 0) side.round(hidden_of_block(), from, kBlockHidden, member);
    }
}

// A block of the shared one, with kTile rows of x at a time.
template <int kTile>
__device__ __forceinline__ void run_shared(const Up& args, int block) {
    using Own = BlockUnits<quant::Type::q8_0>;
    constexpr int kRows = 2 * kSharedHidden;
    const Side& side = args.shared;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int from = block * kSharedBlock;
    const int row_bytes = side.units * 34;
    const std::int64_t at = std::int64_t{from + warp * kSharedHidden} * row_bytes;
    typename Own::Raw raw[kRows];
    const auto load = [&](int unit) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const std::byte* row =
                (r % 2 == 0 ? args.shared_gate : args.shared_up) + at + r / 2 * row_bytes;
            Own::load(Planes<quant::Type::q8_0>{row, side.units, kStageAlign}, unit, raw[r]);
        }
    };
    if (lane < side.units) load(lane);
    follow_earlier_kernels();
#pragma unroll 1
    for (int first = 0; first < args.rows; first += kTile) {
        float sums[kRows][kTile] = {};
#pragma unroll 1
        for (int unit = lane; unit < side.units; unit += kWarp) {
            if (first != 0 || unit != lane) load(unit);
            Unit weight[kRows];
#pragma unroll
            for (int r = 0; r < kRows; ++r) Own::decode(raw[r], unit, nullptr, weight[r]);
#pragma unroll
            for (int t = 0; t < kTile; ++t) {
                const RoundedRow x{side.x_row(min(first + t, args.rows - 1)), side.units};
                int codes[8];
                x.codes(unit, codes);
                const float a = x.scale(unit);
#pragma unroll
                for (int r = 0; r < kRows; ++r) {
                    sums[r][t] = add_unit<Own>(weight[r], codes, 0, a, sums[r][t]);
                }
            }
        }
        float* hidden = hidden_of_block();
#pragma unroll
        for (int t = 0; t < kTile; ++t) {
#pragma unroll
            for (int r = 0; r < kRows; ++r) sums[r][t] = warp_sum(sums[r][t]);
            if (lane < kSharedHidden) {
                hidden[t * kSharedBlock + warp * kSharedHidden + lane] =
                    hidden_value(lane == 0 ? sums[0][t] : sums[2][t], args.shared_gate_factor,
                                 lane == 0 ? sums[1][t] : sums[3][t], args.shared_up_factor);
            }
        }
        __syncthreads();
        if (warp < kTile && first + warp < args.rows) {
            side.round(hidden + warp * kSharedBlock, from, kSharedBlock, first + warp);
        }
        __syncthreads();
    }
}

template <int kTile>
__global__ void __launch_bounds__(kThreads) up_kernel(const __grid_constant__ Up args) {
    const auto block = static_cast<int>(blockIdx.x);
    if (block < args.shared_blocks) {
        run_shared<kTile>(args, block);
    } else {
        run_routed(args, block - args.shared_blocks);
    }
}

std::size_t block_bytes(std::int64_t cols) {
    const auto row_bytes = static_cast<int>(cols / 256 * kIq3Bytes);
    return static_cast<std::size_t>(stages_at(static_cast<int>(cols / kUnit)) +
                                    2 * kWarps * staged(kWarpHidden * row_bytes));
}

bool rounds_whole_groups(quant::Type type, std::int64_t hidden, int block) {
    const int group = group_of(type);
    return group != kPlain && block % group == 0 && hidden % block == 0;
}

bool is_aligned(const op::Weight& weight) {
    return weight.type == quant::Type::q8_0 && weight.row_bytes % kStageAlign == 0 &&
           reinterpret_cast<std::uintptr_t>(weight.data) % kStageAlign == 0;
}

}  // namespace

// At 2,560 columns 194 KiB a block: chips of 9.0 and 10.0 have them, those of 8.0 do not.
bool has_up_rows(const Queue& queue, const op::Experts& args) {
    const op::ExpertTable& table = args.experts;
    const std::int64_t cols = args.x.cols;
    // Rows in shared memory are read by words.
    return table.gate_type == quant::Type::iq3_xxs && table.up_type == quant::Type::iq3_xxs &&
           cols % 512 == 0 && block_bytes(cols) <= queue.shared_bytes_max() &&
           is_aligned(args.shared_gate) && is_aligned(args.shared_up) &&
           rounds_whole_groups(table.down_type, table.hidden, kBlockHidden) &&
           rounds_whole_groups(args.shared_down.type, args.shared_gate.rows, kSharedBlock);
}

RoundedHidden launch_up_rows(Queue& queue, const op::Experts& args, const Routing& routing,
                             int rows, const std::byte* x, const std::byte* shared_x, bool turned) {
    const op::ExpertTable& table = args.experts;
    const int members = rows * args.active;
    const auto units = static_cast<int>(args.x.cols / kUnit);
    const auto hidden = static_cast<int>(table.hidden);
    const auto shared_hidden = static_cast<int>(args.shared_gate.rows);
    const int group = group_of(table.down_type);
    const int shared_group = group_of(args.shared_down.type);
    const RoundedHidden made{
        queue.take<std::byte>(members * operand_bytes(group, hidden)),
        queue.take<std::byte>(rows * operand_bytes(shared_group, shared_hidden))};
    const Up all{.routed = {x, made.routed, units, hidden, group, turned},
                 .used = routing.used,
                 .expert = routing.expert,
                 .first = routing.first,
                 .x_row = routing.x_row,
                 .gate_at = table.gate_at,
                 .up_at = table.up_at,
                 .gate_factors = table.gate_factors,
                 .up_factors = table.up_factors,
                 .shared = {shared_x, made.shared, units, shared_hidden, shared_group, false},
                 .shared_gate = args.shared_gate.data,
                 .shared_up = args.shared_up.data,
                 .shared_gate_factor = args.shared_gate.factor,
                 .shared_up_factor = args.shared_up.factor,
                 .rows = rows,
                 .shared_blocks = shared_hidden / kSharedBlock};
    const auto segments = static_cast<int>(std::min<std::int64_t>(members, table.count));
    const int blocks = all.shared_blocks + segments * (hidden / kBlockHidden);
    launch(queue,
           {.blocks = dim3(static_cast<unsigned>(blocks)),
            .threads = kThreads,
            .shared_bytes = block_bytes(args.x.cols),
            .dependent = true},
           rows == 1 ? up_kernel<1> : up_kernel<kTileMost>, all);
    return made;
}

}  // namespace strata::cuda
