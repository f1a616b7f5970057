// Products of the rows of a prompt with the matrices of the experts that they go to.
#pragma once

#include "backend/cuda/multiply.h"
#include "backend/cuda/prompt_route.h"

namespace strata::cuda::prompt {

// The matrices of all experts [rows, cols], reached through a table of addresses.
struct ExpertMatrices {
    const std::byte* const* at = nullptr;
    quant::Type type = quant::Type::f32;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    const float* factors = nullptr;  // null: none
};

// Rows of a tile. An expert of a long chunk has a hundred or two, and its weights are unpacked once
// a tile; of rows that a tile lacks, sixteen at a time are left out of the products.
inline constexpr int kExpertTileRows = 96;

// Rows as products with experts take them. `spread`: their columns lie in the order that products
// of warpgroups want (multiply_warpgroup.cuh).
struct MemberRows {
    RoundedRows rows;
    bool spread = false;
};

// out[m] = matrix of m's expert . x[row of m], for every member m of the routing. `by_member`: x
// has a row a member instead.
void multiply_members(Queue& queue, const MemberRows& x, const ExpertMatrices& matrices,
                      const Routing& routing, bool by_member, MatrixView<float> out);

// silu(gate . x) * (up . x) of every member, rounded, as products with matrices of type `next`
// take it.
MemberRows multiply_members_gated(Queue& queue, const RoundedRows& x, const ExpertMatrices& gate,
                                  const ExpertMatrices& up, const Routing& routing,
                                  quant::Type next);

}  // namespace strata::cuda::prompt
