// Products of windows in the formats that most files have: a warp a few weight rows, all in one
// launch. Other formats go through products_kernel.
#pragma once

#include "backend/cuda/products.h"

namespace strata::cuda {

// Whether launch_rows has the format of the part.
bool has_rows(const Part& part);

// Runs parts that has_rows() has all, or has_dense_rows() together, each with its own x.
void launch_rows(Queue& queue, Products& products);

}  // namespace strata::cuda
