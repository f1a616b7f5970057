// The products of multiply.cuh for chips whose warpgroups multiply together: both sides lie in
// shared memory as there, and two warpgroups share a tile.
//
// Bound by the tensor cores, where tiles are large: a multiprocessor reads (rows + columns) / (rows
// * columns) of what it multiplies. Columns are added in their order, sixteen at a time, whatever
// the tile.
#pragma once

#include "backend/cuda/multiply.cuh"

namespace strata::cuda {

template <int kRows, int kCols>
struct PanelShape {
    static constexpr int kGroupsDown = kRows / kWarpgroupRows;
    static constexpr int kGroupsAcross = kMultiplyThreads / kWarpgroup / kGroupsDown;
    static constexpr int kGroupCols = kCols / kGroupsAcross;
    static constexpr int kBlocks = kCols == 256 ? 1 : 2;  // of a multiprocessor
    static constexpr int kBytes = (kRows + kCols) * kStepBytes;
    // Products of two steps may read stages; the others are filled.
    static constexpr int kDepth = kRows == 128 && kCols == 128 ? 3 : 4;
    static constexpr std::size_t kSharedBytes = std::size_t{kDepth} * kBytes;
    static_assert(kGroupsDown * kGroupsAcross * kWarpgroup == kMultiplyThreads);
};

// As store_tile(), of what a lane has of rows `row` and `row` + 8.
template <bool kWhole, int kAcross, typename Store>
__device__ inline void store_panel(const float (&sums)[kAcross][4], const TileJob& job, int row,
                                   int col, const Store& store) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int four = 0; four < kAcross; four += 4) {
            float v[4][2];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                v[j][0] = sums[four + j][2 * half];
                v[j][1] = sums[four + j][2 * half + 1];
            }
            if (kWhole || row + 8 * half < job.row_end) {
                store(row + 8 * half, col + 8 * four, v, job.matrix);
            }
        }
    }
}

template <int kRows, int kCols, typename Matrix, typename Plan, typename Store>
__global__ void __launch_bounds__(kMultiplyThreads, (PanelShape<kRows, kCols>::kBlocks))
    multiply_by_panels(RoundedRows x, Matrix matrix, Plan plan, Store store) {
    if (!kWarpgroupsRun) return;
    using Shape = PanelShape<kRows, kCols>;
    TileJob job;
    if (!plan.find(job, kRows, kCols)) return;
    std::byte* shared = shared_panels();
    const RowCopies<kRows> left(
        x, [&](int i) { return job.row + i >= job.row_end ? -1 : job.row + i; });
    typename Matrix::template Tile<kCols> right(matrix, job);
    const int steps = static_cast<int>(x.stride / kStepColumns);
    const auto bring = [&](int step) {
        if (step < steps) {
            std::byte* stage = shared + step % Shape::kDepth * Shape::kBytes;
            left.copy(stage, step);
            right.bring(stage + kRows * kStepBytes, step);
        }
        commit_copies();
    };
    constexpr int kAhead = Shape::kDepth - 2;
    for (int step = 0; step < kAhead; ++step) bring(step);
    if constexpr (Prepares<Store>) store.prepare(job, kRows, kCols);
    const int group = static_cast<int>(threadIdx.x) / kWarpgroup;
    const int down = group % Shape::kGroupsDown * kWarpgroupRows;
    const int across = group / Shape::kGroupsDown * Shape::kGroupCols;
    float sums[Shape::kGroupCols / 8][4] = {};
    for (int step = 0; step < steps; ++step) {
        wait_copies<kAhead - 1>();
        show_copies_to_products();
        __syncthreads();
        std::byte* stage = shared + step % Shape::kDepth * Shape::kBytes;
        const Panel a(stage + down * kStepBytes);
        const Panel b(stage + (kRows + across) * kStepBytes);
        begin_products();
#pragma unroll
        for (int k = 0; k < kStepColumns / 16; ++k) {
            multiply_panels<Shape::kGroupCols>(sums, a, b, 32 * k, step == 0 && k == 0 ? 0 : 1);
        }
        commit_products();
        // Into the stage of the step before the last, whose products were done before the barrier.
        bring(step + kAhead);
        wait_products<1>();
    }
    wait_products<0>();
    take_sums(sums);
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
    const int row = job.row + down + thread / kWarp * 16 + thread % kWarp / 4;
    const int col = job.col + across + thread % 4 * 2;
    if (Prepares<Store> && job.row + kRows <= job.row_end) {
        store_panel<true>(sums, job, row, col, store);
    } else {
        store_panel<false>(sums, job, row, col, store);
    }
}

}  // namespace strata::cuda
