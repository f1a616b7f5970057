// What the choice among a block's candidates is made of, in two files.
#pragma once

#include "backend/cuda/choose.cuh"
#include "op/dflash_select.h"

namespace strata::cuda {

// The token of candidate c of row i; of a row with fewer, which is not walked, any.
__device__ inline std::int32_t token_of(const op::DflashSelect& args, const Lists& lists,
                                        std::int64_t i, int c) {
    const int row = max(load_settled(&lists.at(i, 0)[c].row), 0);
    return static_cast<std::int32_t>(args.token_of_row.empty() ? row : args.token_of_row[row]);
}

// What scores and the walk read.
struct Walk {
    op::DflashSelect args;
    Lists lists;
    MatrixView<float> hidden;     // [n, R]
    MatrixView<float> successor;  // [n * K, R], where its type is not the predecessor's
    float* scores;                // [n, K, K]: of candidate c after candidate a of the row before
    int* counts;                  // [n, K]: how often the candidate is penalized for at row 0

    __host__ __device__ std::int64_t pairs() const {
        return args.logits.rows * lists.wanted * lists.wanted;
    }

    __device__ std::int64_t at(std::int64_t i, int a, int c) const {
        return (i * lists.wanted + a) * lists.wanted + c;
    }
};

// Who is picked row by row, by one block of threads.
void launch_walk(Queue& queue, const Walk& walk);

}  // namespace strata::cuda
