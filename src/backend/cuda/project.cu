#include "backend/cuda/project.h"

#include "backend/cuda/intrinsics.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/stored.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr int kWarpsPerBlock = 4;

// A warp an output and row.
template <typename Stored>
__global__ void __launch_bounds__(kWarpsPerBlock* kWarp)
    project_warp(MatrixView<const float> x, op::Weight weight, MatrixView<float> out) {
    const std::int64_t n = std::int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kWarp;
    if (n >= weight.rows) return;
    const std::int64_t t = blockIdx.y;
    const std::byte* row = weight.row(n);
    float sum = 0.0f;
    for (std::int64_t c = threadIdx.x % kWarp; c < weight.cols; c += kWarp) {
        sum = __fmaf_rn(Stored::at(row, c), x.row(t)[c], sum);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % kWarp == 0) out.row(t)[n] = sum;
}

}  // namespace

void project(Queue& queue, MatrixView<const float> x, std::span<const Product> products, Rounding) {
    for (const Product& product : products) {
        STRATA_CHECK(product.weight.cols == x.cols && product.out.rows == x.rows);
        const auto blocks =
            static_cast<unsigned>((product.weight.rows + kWarpsPerBlock - 1) / kWarpsPerBlock);
        with_stored(product.weight.type, [&](auto stored) {
            launch(queue, {dim3(blocks, static_cast<unsigned>(x.rows)), kWarpsPerBlock * kWarp},
                   project_warp<decltype(stored)>, x, product.weight, product.out);
        });
    }
}

}  // namespace strata::cuda
