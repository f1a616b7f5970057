// How the rows of draft_rows.h are written.
#pragma once

#include "backend/cuda/ahead.cuh"
#include "backend/cuda/draft_rows.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/operand.cuh"
#include "backend/cuda/tensor_core.cuh"

namespace strata::cuda {

// Two values as pairs of BF16; of what is no number nothing is missing.
struct SplitPair {
    unsigned pair[kSplitValues];

    __device__ SplitPair(float low, float high) {
        const auto rest = [](float value, unsigned bits) {
            const float left = value - __uint_as_float(bits);
            return fabsf(left) < INFINITY ? left : 0.0f;
        };
#pragma unroll
        for (unsigned& own : pair) {
            own = bf16_pair(low, high);
            low = rest(low, own << 16);
            high = rest(high, own & 0xffff0000u);
        }
    }
};

// Where a piece of 8 columns of a row lies: 16 bytes, and each `further` bytes on the next values.
__device__ inline std::byte* split_place(const DraftRows& to, int row, int column, int* further) {
    const int begin = row / to.rows_most * to.rows_most;
    const int together = min(to.rows_most, to.rows - begin);
    constexpr int kPieces = kSplitColumns / kSplitPiece;
    *further = together * kPieces * 16;
    const int piece = (row - begin) * kPieces + column % kSplitColumns / kSplitPiece;
    return to.data + split_bytes(begin, to.cols) +
           column / kSplitColumns * kSplitValues * *further + piece * 16;
}

// Eight columns of a row a lane of a warp, from `column` on. All of the warp call it.
__device__ inline void store_eight(const DraftRows& to, int row, int column,
                                   const float (&values)[kPiece]) {
    if (to.form == RowForm::rounded) {
        round_eight(values, column, to.cols, to.cols / kUnit, to.group,
                    to.data + row * operand_bytes(to.group, to.cols));
        return;
    }
    if (column >= to.cols) return;
    if (to.form == RowForm::split) {
        int further = 0;
        std::byte* place = split_place(to, row, column, &further);
        const SplitPair pairs[] = {{values[0], values[1]},
                                   {values[2], values[3]},
                                   {values[4], values[5]},
                                   {values[6], values[7]}};
#pragma unroll
        for (int i = 0; i < kSplitValues; ++i) {
            *reinterpret_cast<uint4*>(place + i * further) =
                make_uint4(pairs[0].pair[i], pairs[1].pair[i], pairs[2].pair[i], pairs[3].pair[i]);
        }
        return;
    }
    float* own = reinterpret_cast<float*>(to.data) + std::int64_t{row} * to.cols + column;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
        if (column + i < to.cols) own[i] = values[i];
    }
}

// A whole row by a block of whole warps, from what `eight` gives of it: eight(column, to), to being
// zeros before, for columns that there are.
template <typename Eight>
__device__ void store_row(const DraftRows& to, int row, const Eight& eight) {
    const auto step = static_cast<int>(blockDim.x) * kPiece;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (int begin = (static_cast<int>(threadIdx.x) - lane) * kPiece; begin < to.cols;
         begin += step) {
        const int column = begin + lane * kPiece;
        float values[kPiece] = {};
        if (column < to.cols) eight(column, values);
        store_eight(to, row, column, values);
    }
}

inline constexpr int kDraftRowThreads = 64;

// A warp takes 256 columns of a row: block (columns, row). x.eight(row, column, to) gives eight,
// zeros past the end.
template <typename Rows>
__global__ void __launch_bounds__(kDraftRowThreads)
    write_draft_rows(Rows x, DraftRows to, const __grid_constant__ Ahead ahead) {
    follow_earlier_kernels();
    ahead.ask();
    const auto row = static_cast<int>(blockIdx.y);
    const int column = static_cast<int>(blockIdx.x * kDraftRowThreads + threadIdx.x) * kPiece;
    float values[kPiece] = {};
    if (column < to.cols) x.eight(row, column, values);
    store_eight(to, row, column, values);
}

// The products are those that will read them.
template <typename Rows>
void fill_draft_rows(Queue& queue, const Rows& x, const DraftRows& to,
                     std::span<const Product> products) {
    constexpr int kColumns = kDraftRowThreads * kPiece;
    const auto across = static_cast<unsigned>((to.cols + kColumns - 1) / kColumns);
    launch_dependent(queue, {dim3(across, static_cast<unsigned>(to.rows)), kDraftRowThreads},
                     write_draft_rows<Rows>, x, to, Ahead::of(products));
}

}  // namespace strata::cuda
