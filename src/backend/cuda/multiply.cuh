// One tile of a product on tensor cores, for matrices that lie in BF16 or are unpacked on the way.
//
// Bound by the tensor cores: a block of eight warps makes kRows x kCols sums, its tiles of x and of
// the weight three steps deep in shared memory. Columns are added in their order, sixteen at a
// time, whatever the tile: so a row's bits depend on neither the tile nor the other rows.
#pragma once

#include "backend/cuda/launch.cuh"
#include "backend/cuda/multiply.h"
#include "backend/cuda/tensor_core.cuh"
#include "backend/cuda/warpgroup.cuh"
#include "base/check.h"

namespace strata::cuda {

inline constexpr int kMultiplyThreads = 256;
inline constexpr int kMultiplyDepth = 3;  // steps in shared memory
// Columns of x from which the sums of a tile take long next to what it ends with.
inline constexpr std::int64_t kLongSums = 512;
inline constexpr int kStepBytes = 2 * static_cast<int>(kStepColumns);

// Where the 16 bytes `piece` of row `row` of a tile lie: pieces of eight neighbouring rows in
// different banks.
__device__ inline std::byte* tile_at(std::byte* tile, int row, int piece) {
    return tile + row * kStepBytes + (piece ^ (row & 7)) * 16;
}

// What a block makes: rows row .. row_end-1 of the result, columns from `col` on, with the matrix
// of this number.
struct TileJob {
    int row = 0;
    int row_end = 0;
    int col = 0;
    int matrix = 0;
};

// The rows of a tile of x or of a matrix in BF16, copied step by step: row i of the tile is row
// find(i) of `from`, zeros where that is negative.
template <int kRows>
class RowCopies {
  public:
    template <typename Find>
    __device__ RowCopies(const RoundedRows& from, Find find) : data_(from.data) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            const std::int64_t row = find(tile_row(i));
            const std::int64_t at = row * (from.stride / 8) + threadIdx.x % 8;
            piece_[i] = row < 0 ? -1 : static_cast<int>(at);
        }
    }
    __device__ void copy(std::byte* tile, int step) const {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            const bool take = piece_[i] >= 0;
            const int piece = take ? piece_[i] + step * static_cast<int>(kStepColumns / 8) : 0;
            copy_async(tile_at(tile, tile_row(i), static_cast<int>(threadIdx.x) % 8),
                       data_ + std::int64_t{piece} * 8, take);
        }
    }

  private:
    static constexpr int kEach = kRows * 8 / kMultiplyThreads;
    __device__ static int tile_row(int i) {
        return static_cast<int>(threadIdx.x) / 8 + i * kMultiplyThreads / 8;
    }

    const std::uint16_t* data_;
    int piece_[kEach];  // of eight values each; -1: zeros
};

// A matrix that lies in BF16.
struct RoundedMatrix {
    RoundedRows rows;

    template <int kCols>
    struct Tile {
        RowCopies<kCols> copies;
        __device__ Tile(const RoundedMatrix& matrix, const TileJob& job)
            : copies(matrix.rows,
                     [&](int i) { return job.col + i < matrix.rows.rows ? job.col + i : -1; }) {}
        __device__ void bring(std::byte* tile, int step) const { copies.copy(tile, step); }
    };
};

// The same of `parts` matrices of as many rows one after another, taken in turn eight rows each.
struct TurningMatrix {
    RoundedRows rows;
    int parts = 0;

    template <int kCols>
    struct Tile {
        RowCopies<kCols> copies;
        __device__ Tile(const TurningMatrix& matrix, const TileJob& job)
            : copies(matrix.rows, [&](int i) {
                  const int each = static_cast<int>(matrix.rows.rows) / matrix.parts;
                  const int eight = (job.col + i) / 8;
                  const int row = eight / matrix.parts * 8 + i % 8;
                  return row < each ? eight % matrix.parts * each + row : -1;
              }) {}
        __device__ void bring(std::byte* tile, int step) const { copies.copy(tile, step); }
    };
};

template <int kRows, int kCols>
struct TileShape {
    // Large parts of a warp need fewer loads from shared memory a product, and all registers.
    static constexpr int kWarpCols = kCols == 256 ? 64 : 32;
    static constexpr int kBlocks = kCols == 256 ? 1 : 2;  // of a multiprocessor
    static constexpr int kWarpsAcross = kCols / kWarpCols;
    static constexpr int kWarpsDown = kMultiplyThreads / kWarp / kWarpsAcross;
    // A warp has every kWarpsDown-th sixteen rows, so that few rows are work for all.
    static constexpr int kRowStride = 16 * kWarpsDown;
    static constexpr int kDown = kRows / kRowStride;
    static constexpr int kAcross = kWarpCols / 8;
    static constexpr int kBytes = (kRows + kCols) * kStepBytes;
    static constexpr std::size_t kSharedBytes = std::size_t{kMultiplyDepth} * kBytes;
    static_assert(kWarpsAcross * kWarpsDown * kWarp == kMultiplyThreads && kRows % kRowStride == 0);
};

// sums += one step of the warp's part of a tile, of its first `down` tiles of sixteen rows. Where
// kWhole, `down` is all of them.
template <typename Shape, bool kWhole>
__device__ inline void add_step(float (&sums)[Shape::kDown][Shape::kAcross][4], std::byte* x,
                                std::byte* weight, int down) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int row = warp / Shape::kWarpsAcross * 16 + lane % 16;
    const int col = warp % Shape::kWarpsAcross * Shape::kWarpCols + lane / 16 * 8 + lane % 8;
#pragma unroll
    for (int k = 0; k < kStepColumns / 16; ++k) {
        std::uint32_t right[Shape::kAcross / 2][4];
#pragma unroll
        for (int j = 0; j < Shape::kAcross / 2; ++j) {
            load_tiles(right[j], tile_at(weight, col + 16 * j, 2 * k + lane / 8 % 2));
        }
#pragma unroll
        for (int i = 0; i < Shape::kDown; ++i) {
            if (!kWhole && i >= down) continue;
            std::uint32_t left[4];
            load_tiles(left, tile_at(x, row + Shape::kRowStride * i, 2 * k + lane / 16));
#pragma unroll
            for (int j = 0; j < Shape::kAcross; ++j) {
                add_tile_bf16(sums[i][j], left, right[j / 2][j % 2 * 2],
                              right[j / 2][j % 2 * 2 + 1]);
            }
        }
    }
}

// The tiles of sixteen rows of this warp that have rows of the job, at most Shape::kDown.
template <typename Shape>
__device__ inline int tiles_down(const TileJob& job) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int rows = job.row_end - job.row - warp / Shape::kWarpsAcross * 16;
    return min(Shape::kDown, max(0, (rows + Shape::kRowStride - 1) / Shape::kRowStride));
}

// Gives store(row, col, v, job.matrix) what each lane has of a row, four pairs at a time: v[j][0],
// v[j][1] of columns col + 8j and the next. Where kWhole, the job has all rows of a tile: then what
// a store reads for one row comes while another is made.
template <typename Shape, bool kWhole, typename Store>
__device__ inline void store_tile(const float (&sums)[Shape::kDown][Shape::kAcross][4],
                                  const TileJob& job, const Store& store) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int first = job.row + warp / Shape::kWarpsAcross * 16 + lane / 4;
    const int col = job.col + warp % Shape::kWarpsAcross * Shape::kWarpCols + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < Shape::kDown; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first + Shape::kRowStride * i + 8 * half;
#pragma unroll
            for (int four = 0; four < Shape::kAcross; four += 4) {
                float v[4][2];
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    v[j][0] = sums[i][four + j][2 * half];
                    v[j][1] = sums[i][four + j][2 * half + 1];
                }
                if (kWhole || row < job.row_end) store(row, col + 8 * four, v, job.matrix);
            }
        }
    }
}

// Whether what a tile ends with reads memory of its own, and wants to have it brought near first.
template <typename Store>
concept Prepares = requires(const Store& store, const TileJob& job) {
    store.prepare(job, 0, 0);
};

// x row r of the result is row index[r] of x, or r where there is no index.
template <int kRows, int kCols, typename Matrix, typename Plan, typename Store>
__global__ void __launch_bounds__(kMultiplyThreads, (TileShape<kRows, kCols>::kBlocks))
    multiply_tiles(RoundedRows x, const std::int32_t* index, Matrix matrix, Plan plan,
                   Store store) {
    if (!kPromptsRun || (kWarpgroupsAlone && !Plan::kOftenPartial)) return;
    using Shape = TileShape<kRows, kCols>;
    TileJob job;
    if (!plan.find(job, kRows, kCols)) return;
    std::byte* shared = shared_bytes();
    const RowCopies<kRows> left(x, [&](int i) {
        const int row = job.row + i;
        return row >= job.row_end ? -1 : index == nullptr ? row : index[row];
    });
    typename Matrix::template Tile<kCols> right(matrix, job);
    const int steps = static_cast<int>(x.stride / kStepColumns);
    const int down = tiles_down<Shape>(job);
    const auto bring = [&](int step) {
        if (step < steps) {
            std::byte* stage = shared + step % kMultiplyDepth * Shape::kBytes;
            left.copy(stage, step);
            right.bring(stage + kRows * kStepBytes, step);
        }
        commit_copies();
    };
    for (int step = 0; step < kMultiplyDepth - 1; ++step) bring(step);
    if constexpr (Prepares<Store>) store.prepare(job, kRows, kCols);
    float sums[Shape::kDown][Shape::kAcross][4] = {};
    for (int step = 0; step < steps; ++step) {
        wait_copies<kMultiplyDepth - 2>();
        __syncthreads();
        // Into the stage that all left before the barrier.
        bring(step + kMultiplyDepth - 1);
        std::byte* stage = shared + step % kMultiplyDepth * Shape::kBytes;
        std::byte* weight = stage + kRows * kStepBytes;
        if (!Plan::kOftenPartial || down == Shape::kDown) {
            add_step<Shape, true>(sums, stage, weight, down);
        } else if (down > 0) {
            add_step<Shape, false>(sums, stage, weight, down);
        }
    }
    if (Prepares<Store> && job.row + kRows <= job.row_end) {
        store_tile<Shape, true>(sums, job, store);
    } else {
        store_tile<Shape, false>(sums, job, store);
    }
}

// All rows of x with one matrix: tiles of rows side by side, so that blocks that run together
// share what they read.
struct DensePlan {
    static constexpr bool kOftenPartial = false;  // tiles have fewer rows than they could
    int rows = 0;

    __device__ bool find(TileJob& job, int tile_rows, int tile_cols) const {
        job = {static_cast<int>(blockIdx.x) * tile_rows, rows,
               static_cast<int>(blockIdx.y) * tile_cols, 0};
        return true;
    }
};

// Column c of the result is column first + c of `out`.
struct StoreRows {
    MatrixView<float> out;
    std::int64_t first = 0;
    float factor = 1;

    __device__ void operator()(std::int64_t row, int col, const float (&v)[4][2], int) const {
        float* to = out.row(row);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const std::int64_t at = first + col + 8 * j;
            if (out.cols % 2 == 0 && at < out.cols) {
                *reinterpret_cast<float2*>(to + at) =
                    make_float2(v[j][0] * factor, v[j][1] * factor);
            } else {
                for (int i = 0; i < 2; ++i) {
                    if (at + i < out.cols) to[at + i] = v[j][i] * factor;
                }
            }
        }
    }
};

// For matrices whose rows are gates and ups in turn, eight of each.
struct StoreGated {
    RoundedRows out;
    std::int64_t cols = 0;
    float gate_factor = 1;
    float up_factor = 1;

    __device__ void operator()(std::int64_t row, int col, const float (&v)[4][2], int) const {
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            const int at = (col + 8 * j) / 16 * 8 + col % 8;
            float hidden[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const bool there = at + i < cols;
                hidden[i] = there ? silu(v[j][i] * gate_factor) * (v[j + 1][i] * up_factor) : 0.0f;
            }
            // Zeros fill a row to whole steps.
            if (at < out.stride) {
                *reinterpret_cast<std::uint32_t*>(out.row(row) + at) =
                    bf16_pair(hidden[0], hidden[1]);
            }
        }
    }
};

}  // namespace strata::cuda
