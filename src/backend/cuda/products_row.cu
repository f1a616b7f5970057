// The products of single rows, and of experts' hidden rows, which are single ones too.
#include "backend/cuda/contract.cuh"
#include "backend/cuda/products.cuh"

namespace strata::cuda {

void launch_products_row(Queue& queue, const Products& products, std::size_t shared_bytes) {
    launch(queue,
           {.blocks = dim3(product_blocks(queue)),
            .threads = kProductThreads,
            .shared_bytes = shared_bytes,
            .dependent = true},
           products_kernel<1>, products);
}

void launch_contraction(Queue& queue, const Contraction& args, unsigned blocks,
                        std::size_t shared_bytes) {
    launch(queue,
           {.blocks = dim3(blocks),
            .threads = kProductThreads,
            .shared_bytes = shared_bytes,
            .dependent = true},
           contraction_kernel, args);
}

}  // namespace strata::cuda
