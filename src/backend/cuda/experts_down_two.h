// The last step of experts for windows whose routed down matrices are Q2_0 and the shared one Q8_0:
// one launch from hidden rows that are rounded, those of the experts turned (operand.cuh), to y.
#pragma once

#include "backend/cuda/contract.h"

namespace strata::cuda {

// Whether launch_down_two() has the formats and shapes, for any number of rows.
bool has_down_two(const Contraction& args);

// As launch_contraction(), with `made` and `shared_made`.
void launch_down_two(Queue& queue, const Contraction& args);

}  // namespace strata::cuda
