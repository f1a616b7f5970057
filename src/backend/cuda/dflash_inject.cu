// Bounded by reading the weights at few rows. The products of all layers take one input, and the
// cells of all layers are written by one launch.
#include <algorithm>

#include "backend/cuda/cache.cuh"
#include "backend/cuda/either_route.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kUnits = 4;      // heads of a block: one a warp
constexpr int kLayersMax = 4;  // of a launch; their products are as many as one call takes

// finite = a row of x with 0 for what is not finite; replaced counts those.
__global__ void __launch_bounds__(kThreads)
    copy_finite(op::DflashInject args, MatrixView<float> finite) {
    follow_earlier_kernels();
    __shared__ int counts[kThreads / kWarp];
    const std::int64_t t = blockIdx.x;
    int replaced = 0;
    for (std::int64_t i = threadIdx.x; i < finite.cols; i += kThreads) {
        const float value = args.features.row(t)[i];
        const bool is_finite = fabsf(value) < INFINITY;
        finite.row(t)[i] = is_finite ? value : 0.0f;
        replaced += is_finite ? 0 : 1;
    }
    if (args.replaced.empty()) return;
    replaced = warp_sum(replaced);
    if (threadIdx.x % kWarp == 0) counts[threadIdx.x / kWarp] = replaced;
    __syncthreads();
    if (threadIdx.x != 0) return;
    int sum = 0;
    for (const int count : counts) sum += count;
    args.replaced[t] = sum;
}

__global__ void __launch_bounds__(kNormThreadsMax)
    norm_fused(op::DflashInject args, MatrixView<float> c) {
    follow_earlier_kernels();
    float* row = c.row(blockIdx.x);
    norm_row(
        c.cols, args.epsilon, args.norm, reinterpret_cast<float*>(shared_bytes()),
        [&](std::int64_t i) { return row[i]; },
        [&](std::int64_t i, float value) { row[i] = value; });
}

// Some layers with their keys and values as projected.
struct Layers {
    op::DflashContextLayer layer[kLayersMax];
    MatrixView<float> key[kLayersMax];
    MatrixView<float> value[kLayersMax];
};

// Puts one head of one row into its cell: block (group of heads, row, layer).
__global__ void __launch_bounds__(kUnits* kWarp) fill_cells(op::DflashInject args, Layers layers) {
    follow_earlier_kernels();
    const auto l = static_cast<int>(blockIdx.z);
    const op::DflashCells& cells = layers.layer[l].cells;
    const std::int64_t t = blockIdx.y + max(std::int64_t{0}, args.features.rows - cells.slots);
    if (t >= args.features.rows) return;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int unit = static_cast<int>(blockIdx.x) * kUnits + warp;
    const int kv_heads = args.shape.kv_heads;
    if (unit >= 2 * kv_heads) return;
    const int d = args.shape.head_dim;
    const int head = unit % kv_heads * d;
    const std::int64_t position = first_of(args) + t;
    const std::int64_t slot = position % cells.slots;
    const op::CacheRow cell{cells.type, kv_heads, d};
    float* held = reinterpret_cast<float*>(shared_bytes()) + warp * d;
    if (unit >= kv_heads) {
        store_head(cell, layers.value[l].row(t) + head, cells.values, slot, unit - kv_heads);
        return;
    }
    norm_and_turn(layers.key[l].row(t) + head, d, layers.layer[l].key_norm, args.epsilon,
                  {args.inverse_frequency, args.shape.rotary_pairs, position}, held,
                  [&](int i, float value) { held[i] = value; });
    store_head(cell, held, cells.keys, slot, unit);
    if (unit == 0 && lane == 0) cells.position[slot] = static_cast<std::int32_t>(position);
}

void check(const op::DflashInject& args) {
    const op::DflashShape& shape = args.shape;
    STRATA_CHECK(args.fuse.cols == args.features.cols);
    STRATA_CHECK(shape.kv_heads > 0 && 2 * shape.rotary_pairs <= shape.head_dim);
    STRATA_CHECK(args.first >= 0 && args.first + args.features.rows <= op::kContextMax + 1);
    STRATA_CHECK(args.replaced.empty() || args.replaced.size == args.features.rows);
    for (std::int64_t l = 0; l < args.layers.size; ++l) {
        STRATA_CHECK(args.layers[l].key.cols == args.fuse.rows && args.layers[l].cells.slots > 0);
    }
}

}  // namespace

void dflash_inject_by(Projector project_rows, const op::DflashInject& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const std::int64_t rows = args.features.rows;
    if (rows == 0) return;
    const auto blocks = static_cast<unsigned>(rows);
    const MatrixView<float> finite = own.matrix(rows, args.features.cols);
    const MatrixView<float> fused = own.matrix(rows, args.fuse.rows);
    launch_dependent(own, {dim3(blocks), kThreads}, copy_finite, args, finite);
    const Product fuse{args.fuse, fused};
    project_rows(own, finite, {&fuse, 1});
    launch_dependent(own,
                     {dim3(blocks), norm_threads(fused.cols),
                      static_cast<std::size_t>(fused.cols) * sizeof(float)},
                     norm_fused, args, fused);
    const std::int64_t kv = std::int64_t{args.shape.kv_heads} * args.shape.head_dim;
    for (std::int64_t first = 0; first < args.layers.size; first += kLayersMax) {
        const std::int64_t count = std::min<std::int64_t>(kLayersMax, args.layers.size - first);
        Layers layers;
        Product products[2 * kLayersMax];
        for (std::int64_t l = 0; l < count; ++l) {
            layers.layer[l] = args.layers[first + l];
            layers.key[l] = own.matrix(rows, kv);
            layers.value[l] = own.matrix(rows, kv);
            products[2 * l] = {layers.layer[l].key, layers.key[l]};
            products[2 * l + 1] = {layers.layer[l].value, layers.value[l]};
        }
        project_rows(own, fused, {products, static_cast<std::size_t>(2 * count)});
        const auto heads = static_cast<unsigned>(2 * args.shape.kv_heads + kUnits - 1) / kUnits;
        launch_dependent(own,
                         {dim3(heads, blocks, static_cast<unsigned>(count)), kUnits * kWarp,
                          static_cast<std::size_t>(kUnits * args.shape.head_dim) * sizeof(float)},
                         fill_cells, args, layers);
    }
}

void dflash_inject(const op::DflashInject& args, device::Queue& queue) {
    dflash_inject_by(project_window, args, queue);
}

}  // namespace strata::cuda
