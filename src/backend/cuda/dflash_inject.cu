// Bounded by reading the weights at few rows. The products of all layers take one input, and the
// cells of all layers are written by one launch.
#include <algorithm>
#include <vector>

#include "backend/cuda/cache.cuh"
#include "backend/cuda/draft_rows.cuh"
#include "backend/cuda/either_route.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kUnits = 4;             // heads of a block: one a warp
constexpr int kLayersOfProducts = 4;  // whose products are as many as one call takes
constexpr int kLayersMax = 8;         // whose cells one launch fills

// Rows of x with 0 for what is not finite; replaced counts those.
__global__ void __launch_bounds__(kThreads) write_finite(op::DflashInject args, DraftRows to) {
    follow_earlier_kernels();
    __shared__ int counts[kThreads / kWarp];
    const std::int64_t t = blockIdx.x;
    const InputRows features{
        .data = args.features.data, .stride = args.features.cols, .cols = to.cols};
    int replaced = 0;
    store_row(to, static_cast<int>(t), [&](int column, float* values) {
        features.eight(t, column, values);
#pragma unroll
        for (int i = 0; i < kPiece; ++i) {
            if (fabsf(values[i]) < INFINITY) continue;
            values[i] = 0.0f;
            ++replaced;
        }
    });
    if (args.replaced.empty()) return;
    replaced = warp_sum(replaced);
    if (threadIdx.x % kWarp == 0) counts[threadIdx.x / kWarp] = replaced;
    __syncthreads();
    if (threadIdx.x != 0) return;
    int sum = 0;
    for (const int count : counts) sum += count;
    args.replaced[t] = sum;
}

// A row of the norms of c a block.
__global__ void __launch_bounds__(kNormThreadsMax)
    norm_fused(op::DflashInject args, MatrixView<const float> c, DraftRows to) {
    follow_earlier_kernels();
    const float* row = c.row(blockIdx.x);
    float* const held = reinterpret_cast<float*>(shared_bytes());
    norm_row(
        c.cols, args.epsilon, args.norm, held, [&](std::int64_t i) { return row[i]; },
        [&](std::int64_t i, float value) { held[i] = value; });
    __syncthreads();
    store_row(to, static_cast<int>(blockIdx.x), [&](int column, float* values) {
        for (int i = 0; i < kPiece && column + i < to.cols; ++i) values[i] = held[column + i];
    });
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
    STRATA_CHECK(args.fuse.cols == args.features.cols && !args.layers.empty());
    STRATA_CHECK(shape.kv_heads > 0 && 2 * shape.rotary_pairs <= shape.head_dim);
    STRATA_CHECK(args.first >= 0 && args.first + args.features.rows <= op::kContextMax + 1);
    STRATA_CHECK(args.replaced.empty() || args.replaced.size == args.features.rows);
    for (std::int64_t l = 0; l < args.layers.size; ++l) {
        STRATA_CHECK(args.layers[l].key.cols == args.fuse.rows && args.layers[l].cells.slots > 0);
    }
}

// Rows for the products of a route, and those products.
struct Route {
    Projector project;  // null: by those of draft_rows.h

    DraftRows make(Queue& queue, std::int64_t rows, std::int64_t cols,
                   std::span<const Product> products) const {
        return project == nullptr ? make_draft_rows(queue, rows, cols, products)
                                  : make_plain_rows(queue, rows, cols);
    }
    void run(Queue& queue, const DraftRows& x, std::span<const Product> products) const {
        if (project == nullptr) return project_draft(queue, x, products);
        project(queue, x.plain(), products);
    }
};

// c, normed for the products of the layers.
void fuse_rows(Queue& queue, const Route& route, const op::DflashInject& args,
               const DraftRows& normed) {
    const std::int64_t rows = args.features.rows;
    const auto blocks = static_cast<unsigned>(rows);
    const MatrixView<float> fused = queue.matrix(rows, args.fuse.rows);
    const Product fuse{args.fuse, fused};
    const DraftRows finite = route.make(queue, rows, args.features.cols, {&fuse, 1});
    launch_dependent(queue, {dim3(blocks), kThreads}, write_finite, args, finite);
    route.run(queue, finite, {&fuse, 1});
    launch_dependent(queue,
                     {dim3(blocks), norm_threads(fused.cols),
                      static_cast<std::size_t>(fused.cols) * sizeof(float)},
                     norm_fused, args, fused, normed);
}

}  // namespace

void dflash_inject_by(Projector project, const op::DflashInject& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const std::int64_t rows = args.features.rows;
    if (rows == 0) return;
    const Route route{project};
    const std::int64_t kv = std::int64_t{args.shape.kv_heads} * args.shape.head_dim;
    std::vector<Product> products;
    for (std::int64_t l = 0; l < args.layers.size; ++l) {
        products.push_back({args.layers[l].key, own.matrix(rows, kv)});
        products.push_back({args.layers[l].value, own.matrix(rows, kv)});
    }
    const DraftRows normed = route.make(own, rows, args.fuse.rows, products);
    fuse_rows(own, route, args, normed);
    const std::span<const Product> all = products;
    constexpr std::size_t kProductsOfCall = 2 * kLayersOfProducts;
    for (std::size_t first = 0; first < all.size(); first += kProductsOfCall) {
        route.run(own, normed, all.subspan(first, std::min(kProductsOfCall, all.size() - first)));
    }
    for (std::int64_t first = 0; first < args.layers.size; first += kLayersMax) {
        const std::int64_t count = std::min<std::int64_t>(kLayersMax, args.layers.size - first);
        Layers layers;
        for (std::int64_t l = 0; l < count; ++l) {
            const auto at = static_cast<std::size_t>(2 * (first + l));
            layers.layer[l] = args.layers[first + l];
            layers.key[l] = all[at].out;
            layers.value[l] = all[at + 1].out;
        }
        const auto heads = static_cast<unsigned>(2 * args.shape.kv_heads + kUnits - 1) / kUnits;
        launch_dependent(
            own,
            {dim3(heads, static_cast<unsigned>(rows), static_cast<unsigned>(count)), kUnits * kWarp,
             static_cast<std::size_t>(kUnits * args.shape.head_dim) * sizeof(float)},
            fill_cells, args, layers);
    }
}

void dflash_inject(const op::DflashInject& args, device::Queue& queue) {
    dflash_inject_by(nullptr, args, queue);
}

}  // namespace strata::cuda
