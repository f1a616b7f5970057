// The kernel of dense_rows.h for windows of a few rows: their products on tensor cores.
#pragma once

#include "backend/cuda/dense_rows.cuh"

namespace strata::cuda {

// Whether launch_dense_window() has windows of so many rows, of parts of `type` and others without
// blocks.
bool has_dense_window(const Queue& queue, int x_rows, int cols, quant::Type type);

// Parts without blocks stand first and have a block of `args` a row; of the others a block has
// kDenseWindowRows rows.
inline constexpr int kDenseWindowRows = 8;
void launch_dense_window(Queue& queue, const DenseArgs& args, int cols, quant::Type type);

}  // namespace strata::cuda
