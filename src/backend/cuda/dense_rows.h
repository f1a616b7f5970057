// Products of matrices that all rows of a window are multiplied with: the part of rows.h for shapes
// whose weight rows fit the registers of a few lanes.
#pragma once

#include "backend/cuda/products.h"

namespace strata::cuda {

// Whether launch_dense_rows() has all the parts.
bool has_dense_rows(const Queue& queue, const Products& products);

// Whether it reads `made` of the parts; else it rounds their x itself.
bool dense_rows_need_made(const Products& products);

// Runs the parts in their order. The bits are those of launch_rows().
void launch_dense_rows(Queue& queue, const Products& products);

}  // namespace strata::cuda
