// Whole matrices of blocks to BF16, for products that read them in place of what is stored. Bound
// by memory: 64 bytes written a unit.
#pragma once

#include "backend/cuda/launch.cuh"
#include "backend/cuda/multiply.h"
#include "backend/cuda/unpack_pairs.cuh"
#include "base/check.h"

namespace strata::cuda {

inline constexpr int kUnpackThreads = 256;

// The row of `out` that row r goes to: with `turn` 0 or 1 eights of two matrices lie in turn.
__device__ inline std::int64_t turned_row(std::int64_t r, int turn) {
    return turn < 0 ? r : r / 8 * 16 + r % 8 + 8 * turn;
}

// A lane unpacks a unit, and a warp writes its 32 through shared memory, so that neighbouring lanes
// write neighbouring bytes.
template <quant::Type kType>
__global__ void __launch_bounds__(kUnpackThreads)
    unpack_rows(op::Weight weight, RoundedRows out, int turn) {
    follow_earlier_kernels();
    using Own = BlockUnits<kType>;
    using Pairs = UnitPairs<kType>;
    constexpr int kUnitBytes = 2 * kUnit;
    std::byte* shared = shared_bytes();
    auto* table = reinterpret_cast<unsigned*>(shared);
    Pairs::template fill<kUnpackThreads>(table);
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    std::byte* own = shared + Pairs::kTableBytes + warp * kWarp * kUnitBytes;
    const auto across = static_cast<int>(out.stride / kUnit);
    const auto there = static_cast<int>(weight.cols / kUnit);
    const auto blocks = static_cast<int>(weight.cols / block_fields(kType).values);
    const int align = align_of(weight.data, weight.row_bytes);
    const auto all = static_cast<int>(weight.rows) * across;
    const int stride = static_cast<int>(gridDim.x) * kUnpackThreads;
    for (int first = static_cast<int>(blockIdx.x) * kUnpackThreads + warp * kWarp; first < all;
         first += stride) {
        const int unit = first + lane;
        Pairs pairs;
        if (unit < all && unit % across < there) {
            typename Own::Raw raw;
            Own::load(Planes<kType>{weight.row(unit / across), blocks, align}, unit % across, raw);
            pairs.set(raw, unit % across, table);
        }
        const auto at = [&](int i, int piece) {
            return reinterpret_cast<uint4*>(own + i * kUnitBytes + (piece ^ i / 2 % 4) * 16);
        };
#pragma unroll
        for (int piece = 0; piece < 4; ++piece) {
            const uint2 low = pairs.four(2 * piece, pairs.look(2 * piece, table));
            const uint2 high = pairs.four(2 * piece + 1, pairs.look(2 * piece + 1, table));
            *at(lane, piece) = make_uint4(low.x, low.y, high.x, high.y);
        }
        __syncwarp();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int i = k * (kWarp / 4) + lane / 4;
            const int written = first + i;
            if (written >= all) continue;
            std::uint16_t* to = out.row(turned_row(written / across, turn)) +
                                written % across * kUnit + lane % 4 * 8;
            *reinterpret_cast<uint4*>(to) = *at(i, lane % 4);
        }
        __syncwarp();
    }
}

// The matrix, one of blocks, to `out`.
inline void unpack_blocks(Queue& queue, const op::Weight& weight, const RoundedRows& out,
                          int turn) {
    constexpr int kBlocksEach = 6;  // of a multiprocessor
    const std::int64_t units = weight.rows * (out.stride / kUnit);
    STRATA_CHECK(units <= INT32_MAX / 2);
    const std::int64_t blocks =
        std::min<std::int64_t>((units + kUnpackThreads - 1) / kUnpackThreads,
                               std::int64_t{kBlocksEach} * queue.multiprocessors());
    switch (weight.type) {
#define STRATA_CASE(name)                                                                          \
    case quant::Type::name:                                                                        \
        return launch_dependent(                                                                   \
            queue,                                                                                 \
            {dim3(static_cast<unsigned>(blocks)), kUnpackThreads,                                  \
             UnitPairs<quant::Type::name>::kTableBytes + std::size_t{kUnpackThreads} * 2 * kUnit}, \
            unpack_rows<quant::Type::name>, weight, out, turn);
        STRATA_BLOCK_TYPES(STRATA_CASE)
#undef STRATA_CASE
        default:
            STRATA_CHECK(!"a matrix of a format without blocks");
    }
}

}  // namespace strata::cuda
