// The products of multiply_unpacked.cuh for chips whose warpgroups multiply together: weights are
// unpacked in the registers of the lanes that hold them as the left side, and the rows of x lie in
// shared memory as the right side, which costs a third of the reads of shared memory that warps
// alone take, and lets lanes unpack while the tensor cores work.
//
// A lane unpacks a unit of 32 neighbouring columns, of which each product takes four. So x comes
// with its columns in the order that products meet them: spread_column(). The rows of a block's
// members are on their way two steps ahead; a block goes through several blocks of rows of the
// matrix without a stop between them.
#pragma once

#include "backend/cuda/multiply_unpacked.cuh"
#include "backend/cuda/warpgroup.cuh"

namespace strata::cuda::prompt {

// The column at a place of a row whose columns are spread. Pairs of an even column and the next
// stay together.
__device__ constexpr int spread_column(int place) {
    constexpr int kSpan = 4 * kUnit;
    const int in = place % kSpan;
    const int product = in / 16;
    const int lane = in % 8 / 2;
    return place - in + kUnit * lane + 4 * product + in % 16 / 8 * 2 + in % 2;
}

namespace warpgroups {

using unpacked::Job;
using unpacked::kSpan;

inline constexpr int kGroups = 2;  // of a block
inline constexpr int kThreads = kGroups * kWarpgroup;
inline constexpr int kBlockRows = kGroups * kWarpgroupRows;
inline constexpr int kAhead = 2;
// Products read one stage, those of the step before may still read another, and kAhead are filled.
inline constexpr int kDepth = kAhead + 2;
inline constexpr int kPanels = kSpan / kPanelColumns;
inline constexpr int kPanelBytes = kExpertTileRows * kPanelRowBytes;
inline constexpr int kStageBytes = kPanels * kPanelBytes;
inline constexpr int kProducts = kSpan / 16;
inline constexpr int kTogether = 2;  // products of a group

// Stages, the format's table, and where the rows of the members begin: at addresses that the
// compiler knows.
template <quant::Type kType>
struct Shared {
    static constexpr int kTableAt = kDepth * kStageBytes;
    static constexpr int kFirstAt = kTableAt + UnitPairs<kType>::kTableBytes;
    static constexpr std::size_t kBytes = kFirstAt + kExpertTileRows * sizeof(unsigned);

    __device__ static std::byte* stage(int number) {
        return shared_panels() + number % kDepth * kStageBytes;
    }
    __device__ static unsigned* table() {
        return reinterpret_cast<unsigned*>(shared_panels() + kTableAt);
    }
    // Pieces of 16 bytes.
    __device__ static unsigned* first() {
        return reinterpret_cast<unsigned*>(shared_panels() + kFirstAt);
    }
};

// The units of a lane: of rows g and g + 8 of the warp's, g = lane / 4.
template <quant::Type kType>
class Units {
  public:
    using Own = BlockUnits<kType>;
    using Pairs = UnitPairs<kType>;

    __device__ Units(const UnpackedProduct& work, const Job& job)
        : blocks_(static_cast<int>(work.matrices.cols / block_fields(kType).values)),
          units_(static_cast<int>(work.matrices.cols / kUnit)) {
        start(work, job.expert, job.row);
    }
    // From row `first` of an expert's products on.
    __device__ void start(const UnpackedProduct& work, int expert, int first) {
        const auto thread = static_cast<int>(threadIdx.x);
        const int warp_row = first + thread / kWarp * 16;
        const int own = thread % kWarp / 4;
        align_ = 16;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const bool turns = i == 1 && work.turning != nullptr;
            const std::byte* matrix = (turns ? work.turning : work.matrices.at)[expert];
            align_ = min(align_, align_of(matrix, work.row_bytes));
            int r = warp_row + 8 * i + own;
            if (work.turning != nullptr) r = warp_row / 2 + own;
            if (work.spreads_hidden) r = spread_column(r);
            row_[i] = r < work.matrices.rows ? matrix + r * work.row_bytes : nullptr;
        }
    }
    __device__ void load(int step) {
        const int unit = unit_of(step);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            there_[i] = row_[i] != nullptr && unit < units_;
            if (there_[i]) Own::load(Planes<kType>{row_[i], blocks_, align_}, unit, raw_[i]);
        }
    }
    __device__ void decode(int step, const unsigned* table) {
        const int unit = unit_of(step);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            own_[i] = Pairs{};
            if (there_[i]) own_[i].set(raw_[i], unit, table);
        }
    }
    // Of product s, 0 <= s < kProducts, what tile() takes.
    __device__ uint2 look(int s, const unsigned* table) const {
        return make_uint2(own_[0].look(s, table), own_[1].look(s, table));
    }
    __device__ void tile(int s, const uint2& found, std::uint32_t (&to)[4]) const {
        const uint2 upper = own_[0].four(s, found.x);
        const uint2 lower = own_[1].four(s, found.y);
        to[0] = upper.x, to[1] = lower.x, to[2] = upper.y, to[3] = lower.y;
    }

  private:
    __device__ static int unit_of(int step) {
        return step * (kSpan / kUnit) + static_cast<int>(threadIdx.x) % 4;
    }

    const std::byte* row_[2];  // null: zeros
    int blocks_;
    int units_;
    int align_;
    bool there_[2];
    typename Own::Raw raw_[2];
    Pairs own_[2];
};

// The rows of x of kRows members, step by step in shared memory.
template <quant::Type kType, int kRows>
class Members {
  public:
    __device__ Members(const UnpackedProduct& work, const Job& job)
        : data_(reinterpret_cast<const std::byte*>(work.x.data)) {
        const auto thread = static_cast<int>(threadIdx.x);
        if (thread < kRows) {
            const int member = job.member + min(thread, job.members - 1);
            const std::int64_t row = work.index == nullptr ? member : work.index[member];
            Shared<kType>::first()[thread] = static_cast<unsigned>(row * (work.x.stride / 8));
        }
        __syncthreads();
    }
    // `number` counts the steps of all blocks of rows.
    __device__ void bring(int number, int step) const {
        constexpr int kPieces = kSpan / 8;
        constexpr int kPanelPieces = kPieces / kPanels;
        const auto thread = static_cast<int>(threadIdx.x);
        const int piece = thread % kPieces;
        std::byte* panel = Shared<kType>::stage(number) + piece / kPanelPieces * kPanelBytes;
        const std::byte* from = as_it_is(data_ + (step * kPieces + piece) * 16);
#pragma unroll
        for (int i = 0; i < kRows * kPieces / kThreads; ++i) {
            const int r = thread / kPieces + i * (kThreads / kPieces);
            copy_async(panel + panel_at(r, piece % kPanelPieces),
                       from + std::uint64_t{Shared<kType>::first()[r]} * 16, true);
        }
    }

  private:
    const std::byte* data_;
};

template <int kRows>
using Sums = float[kRows / 8][4];

// Rows from `first` on.
template <int kRows>
__device__ inline void store(const UnpackedProduct& work, const Job& job, int first,
                             const Sums<kRows>& sums) {
    using unpacked::factor_of;
    using unpacked::pair_of;
    using unpacked::store_pair;
    const auto thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kWarp;
    const int even = lane / 8 * 2;
    const int row = first + thread / kWarp * 16;
    const float factor = factor_of(work.matrices.factors, job.expert);
    const float other_factor = factor_of(work.turning_factors, job.expert);
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
        const int own = 8 * j + lane % 4 * 2 + lane / 4 % 2;
        const std::int64_t member = job.member + own;
        const float(&v)[4] = sums[j];
        if (work.turning == nullptr) {
            const float2 upper = pair_of(v[0] * factor, v[1] * factor);
            const float2 lower = pair_of(v[2] * factor, v[3] * factor);
            if (own >= job.members) continue;
            store_pair(work.out, member, row + even, upper);
            store_pair(work.out, member, row + 8 + even, lower);
            continue;
        }
        const float2 hidden = pair_of(silu(v[0] * factor) * (v[2] * other_factor),
                                      silu(v[1] * factor) * (v[3] * other_factor));
        const int at = row / 2 + even;
        // Zeros fill a row to whole steps.
        if (own >= job.members || at >= work.hidden.stride) continue;
        const int column = work.spreads_hidden ? spread_column(at) : at;
        *reinterpret_cast<std::uint32_t*>(work.hidden.row(member) + at) =
            bf16_pair(column < work.matrices.rows ? hidden.x : 0.0f,
                      column + 1 < work.matrices.rows ? hidden.y : 0.0f);
    }
}

// All rows of a block, with its first kRows members.
template <quant::Type kType, int kRows>
__device__ inline void multiply_rows(const UnpackedProduct& work, const Job& job) {
    const unsigned* table = Shared<kType>::table();
    Units<kType> units(work, job);
    units.load(0);
    const Members<kType, kRows> members(work, job);
    const auto steps = static_cast<int>(work.x.stride / kSpan);
    const int blocks = min(work.row_blocks, (work.rows - job.row + kBlockRows - 1) / kBlockRows);
    const int all = steps * blocks;
    int coming = 0;  // the step of the next stage to fill
    const auto bring = [&](int number) {
        if (number < all) members.bring(number, coming);
        commit_copies();
        if (++coming == steps) coming = 0;
    };
    for (int i = 0; i < kAhead; ++i) bring(i);
    std::uint32_t left[2][kTogether][4];
    int number = 0;
    for (int block = 0; block < blocks; ++block) {
        Sums<kRows> sums;
        for (int step = 0; step < steps; ++step, ++number) {
            units.decode(step, table);
            const Panel panel(Shared<kType>::stage(number));
            uint2 found[kTogether];
#pragma unroll
            for (int i = 0; i < kTogether; ++i) found[i] = units.look(i, table);
#pragma unroll
            for (int g = 0; g < kProducts / kTogether; ++g) {
                // What read these registers two groups ago is done.
                wait_products<1>();
#pragma unroll
                for (int i = 0; i < kTogether; ++i) {
                    const int s = g * kTogether + i;
                    const uint2 now = found[i];
                    if (s + kTogether < kProducts) found[i] = units.look(s + kTogether, table);
                    units.tile(s, now, left[g % 2][i]);
                }
                if (g == 0) {
                    wait_copies<kAhead - 1>();
                    show_copies_to_products();
                    __syncthreads();
                    // Into the stage that no product reads: those of the step before the last are
                    // done.
                    bring(number + kAhead);
                    // Here, since what shows copies waits for loads before it.
                    if (step + 1 < steps) {
                        units.load(step + 1);
                    } else if (block + 1 < blocks) {
                        units.start(work, job.expert, job.row + (block + 1) * kBlockRows);
                        units.load(0);
                    }
                }
                begin_products();
#pragma unroll
                for (int i = 0; i < kTogether; ++i) {
                    const int s = g * kTogether + i;
                    const int adds = step == 0 && s == 0 ? 0 : 1;
                    constexpr int kEach = kProducts / kPanels;  // of a panel
                    add_panel_bf16<kRows>(sums, left[g % 2][i], panel,
                                          s / kEach * kPanelBytes + s % kEach * 32, adds);
                }
                commit_products();
            }
        }
        wait_products<0>();
        take_sums(sums);
        store<kRows>(work, job, job.row + block * kBlockRows, sums);
    }
}

// Formats that experts mostly have: for these no more than fifteen rows are multiplied in vain. For
// others that would only take long to compile.
template <quant::Type kType>
inline constexpr bool kOftenUsed = kType == quant::Type::iq3_xxs || kType == quant::Type::q2_0;

template <quant::Type kType>
__global__ void __launch_bounds__(kThreads, 2) multiply_warpgroups(UnpackedProduct work) {
    if (!kWarpgroupsRun) return;
    Job job;
    if (!unpacked::find(work, job)) return;
    job.row = static_cast<int>(blockIdx.x) % work.blocks_across * work.row_blocks * kBlockRows;
    UnitPairs<kType>::template fill<kThreads>(Shared<kType>::table());
    if (job.members <= 16) return multiply_rows<kType, 16>(work, job);
    if constexpr (kOftenUsed<kType>) {
        if (job.members <= 32) return multiply_rows<kType, 32>(work, job);
        if (job.members > 48 && job.members <= 64) return multiply_rows<kType, 64>(work, job);
        if (job.members > 64 && job.members <= 80) return multiply_rows<kType, 80>(work, job);
    }
    if (job.members <= 48) return multiply_rows<kType, 48>(work, job);
    multiply_rows<kType, 96>(work, job);
}

}  // namespace warpgroups
}  // namespace strata::cuda::prompt
