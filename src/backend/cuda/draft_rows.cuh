// How the rows of draft_rows.h are written.
#pragma once

#include "backend/cuda/draft_rows.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/operand.cuh"
#include "backend/cuda/tensor_core.cuh"

namespace strata::cuda {

// Two values as pairs of BF16: the nearest, and of what is missing the nearest.
struct SplitPair {
    unsigned first;
    unsigned missing;

    __device__ SplitPair(float low, float high) : first(bf16_pair(low, high)) {
        const auto rest = [](float value, unsigned bits) {
            const float left = value - __uint_as_float(bits);
            return fabsf(left) < INFINITY ? left : 0.0f;  // of what is no number nothing is missing
        };
        missing = bf16_pair(rest(low, first << 16), rest(high, first & 0xffff0000u));
    }
};

// Where a piece of 8 columns of a row lies: 16 bytes, and `further` bytes on what is missing.
__device__ inline std::byte* split_place(const DraftRows& to, int row, int column, int* further) {
    const int begin = row / to.rows_most * to.rows_most;
    const int together = min(to.rows_most, to.rows - begin);
    *further = together * (kSplitColumns / kSplitPiece) * 16;
    const int piece = (row - begin) * (kSplitColumns / kSplitPiece) + column % 32 / kSplitPiece;
    return to.data + split_bytes(begin, to.cols) + column / kSplitColumns * 2 * *further +
           piece * 16;
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
        *reinterpret_cast<uint4*>(place) =
            make_uint4(pairs[0].first, pairs[1].first, pairs[2].first, pairs[3].first);
        *reinterpret_cast<uint4*>(place + further) =
            make_uint4(pairs[0].missing, pairs[1].missing, pairs[2].missing, pairs[3].missing);
        return;
    }
    float* own = reinterpret_cast<float*>(to.data) + std::int64_t{row} * to.cols + column;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
        if (column + i < to.cols) own[i] = values[i];
    }
}

inline constexpr int kDraftRowThreads = 64;

// A warp takes 256 columns of a row: block (columns, row). x.eight(row, column, to) gives eight,
// zeros past the end.
template <typename Rows>
__global__ void __launch_bounds__(kDraftRowThreads) write_draft_rows(Rows x, DraftRows to) {
    follow_earlier_kernels();
    const auto row = static_cast<int>(blockIdx.y);
    const int column = static_cast<int>(blockIdx.x * kDraftRowThreads + threadIdx.x) * kPiece;
    float values[kPiece] = {};
    if (column < to.cols) x.eight(row, column, values);
    store_eight(to, row, column, values);
}

template <typename Rows>
void fill_draft_rows(Queue& queue, const Rows& x, const DraftRows& to) {
    constexpr int kColumns = kDraftRowThreads * kPiece;
    const auto across = static_cast<unsigned>((to.cols + kColumns - 1) / kColumns);
    launch_dependent(queue, {dim3(across, static_cast<unsigned>(to.rows)), kDraftRowThreads},
                     write_draft_rows<Rows>, x, to);
}

}  // namespace strata::cuda
