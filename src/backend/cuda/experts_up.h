// The first step of experts for windows whose gate and up matrices are IQ3_XXS, the shared ones
// Q8_0: one launch from rounded rows of x to rounded hidden rows.
#pragma once

#include "backend/cuda/products.h"
#include "backend/cuda/route.h"
#include "op/experts.h"

namespace strata::cuda {

// Hidden rows as products with the down matrices read them, silu(gate . x) * (up . x).
struct RoundedHidden {
    std::byte* routed = nullptr;  // [T*k, operand_bytes], by member
    std::byte* shared = nullptr;  // [T, operand_bytes]
};

// Whether launch_up_rows() has the formats and shapes, for any number of rows.
bool has_up_rows(const Queue& queue, const op::Experts& args);

// Of `rows` rows of x that are rounded in the groups of IQ3_XXS and of Q8_0; `turned`: rows of
// `routed` are (operand.cuh).
RoundedHidden launch_up_rows(Queue& queue, const op::Experts& args, const Routing& routing,
                             int rows, const std::byte* x, const std::byte* shared_x, bool turned);

}  // namespace strata::cuda
