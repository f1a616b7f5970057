// The products of windows of several rows.
#include "backend/cuda/products.cuh"

namespace strata::cuda {

void launch_products_window(Queue& queue, const Products& products, std::size_t shared_bytes) {
    launch(queue,
           {.blocks = dim3(product_blocks(queue)),
            .threads = kProductThreads,
            .shared_bytes = shared_bytes,
            .dependent = true},
           products_kernel<4>, products);
}

}  // namespace strata::cuda
