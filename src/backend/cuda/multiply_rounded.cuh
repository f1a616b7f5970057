// All rows of x with one matrix on tensor cores: which tiles, and whose products.
#pragma once

#include "backend/cuda/multiply_panels.cuh"

namespace strata::cuda {

template <int kRows, int kCols, typename Matrix, typename Plan, typename Store>
void start_tiles(Queue& queue, const RoundedRows& x, const Matrix& matrix, std::int64_t cols,
                 const Plan& plan, bool panels, const Store& store) {
    const auto tiles = [](std::int64_t n, int tile) {
        return static_cast<unsigned>((n + tile - 1) / tile);
    };
    const dim3 blocks(tiles(x.rows, kRows), tiles(cols, kCols));
    if (panels) {
        launch(queue, {blocks, kMultiplyThreads, PanelShape<kRows, kCols>::kSharedBytes},
               multiply_by_panels<kRows, kCols, Matrix, Plan, Store>, x, matrix, plan, store);
        return;
    }
    launch(queue, {blocks, kMultiplyThreads, TileShape<kRows, kCols>::kSharedBytes},
           multiply_tiles<kRows, kCols, Matrix, Plan, Store>, x, nullptr, matrix, plan, store);
}

// With `cols` rows of a matrix: the largest tiles that leave few multiprocessors idle.
template <typename Matrix, typename Store>
void multiply_rounded(Queue& queue, const RoundedRows& x, const Matrix& matrix, std::int64_t cols,
                      const Store& store) {
    STRATA_CHECK(x.stride == matrix.rows.stride);
    STRATA_CHECK(x.rows * x.stride / 8 <= INT32_MAX && cols * x.stride / 8 <= INT32_MAX);
    const DensePlan plan{static_cast<int>(x.rows)};
    const auto tiles = [&](std::int64_t tile_cols, std::int64_t tile_rows = 128) {
        return (x.rows + tile_rows - 1) / tile_rows * ((cols + tile_cols - 1) / tile_cols);
    };
    // The largest tiles leave room for one block: no other works while it ends.
    const bool panels = runs_warpgroups(queue, x.rows);
    const std::size_t largest =
        panels ? PanelShape<128, 256>::kSharedBytes : TileShape<128, 256>::kSharedBytes;
    const bool long_sums = x.stride >= kLongSums && largest <= queue.shared_bytes_max();
    // With one block each, multiprocessors wait for the last ones.
    const std::int64_t each = queue.multiprocessors();
    const std::int64_t rounds = (tiles(256) + each - 1) / each;
    if (long_sums && 4 * tiles(256) >= 3 * rounds * each) {
        start_tiles<128, 256>(queue, x, matrix, cols, plan, panels, store);
    } else if (tiles(128) >= 2 * queue.multiprocessors()) {
        start_tiles<128, 128>(queue, x, matrix, cols, plan, panels, store);
    } else if (tiles(128, 64) >= queue.multiprocessors()) {
        start_tiles<64, 128>(queue, x, matrix, cols, plan, panels, store);
    } else {
        start_tiles<64, 64>(queue, x, matrix, cols, plan, panels, store);
    }
}

}  // namespace strata::cuda
