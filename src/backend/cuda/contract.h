// The last step of experts: what their down matrices make of hidden rows, summed by share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/products.h"

namespace strata::cuda {

// Of T rows with k members each. y[t] = sum over slots of share * down . hidden of its member, then
// sigmoid(scale) * shared down . hidden of the row.
struct Contraction {
    Part routed;  // its matrices by own_expert
    Part shared;
    InputRows hidden;         // by member
    InputRows shared_hidden;  // by row
    // The same rows as products read them; null: each block makes them in shared memory.
    const std::byte* made = nullptr;
    const std::byte* shared_made = nullptr;
    int rows = 0;                          // T
    int active = 0;                        // k
    const std::int32_t* chosen = nullptr;  // [T, k]
    const int* own_expert = nullptr;       // of members
    const int* place = nullptr;            // [T*k]
    const float* share = nullptr;          // [T, k]
    const float* scale = nullptr;          // [T]
    MatrixView<float> y;
    int book_bytes = 0;
};

void launch_contraction(Queue& queue, const Contraction& args, unsigned blocks,
                        std::size_t shared_bytes);

}  // namespace strata::cuda
