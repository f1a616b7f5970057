// Bounded by reading and writing the memories once. All layers go together, so that where nothing
// is to be done that is soon known.
#include <algorithm>
#include <array>

#include "backend/cuda/delta_heads.cuh"
#include "backend/cuda/fours.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace strata::cuda {
namespace {

// Of one launch: their places are parameters.
constexpr int kLayersMost = 16;

struct Replay {
    std::array<op::ReplayedLayer, kLayersMost> layer;
    op::KeptRows kept;
    op::DeltaShape shape;
    op::HeadOrder order;
};

// Some rows of a trace, of which the memory alone is wanted.
template <int kThreads>
__device__ void load_traced(const Replay& args, const op::DeltaTrace& trace, const DeltaTile& tile,
                            int h, const HeadPart& part, std::int64_t first, int rows) {
    const op::DeltaShape& s = args.shape;
    const HeadChannels channels(s, args.order, h, part);
    const auto thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < rows * s.key_dim; i += kThreads) {
        const float* row = trace.convolved.row(first + i / s.key_dim);
        tile.q[i] = 0.0f;
        tile.k[i] = row[channels.key + i % s.key_dim];
    }
    for (int i = thread; i < rows * part.columns; i += kThreads) {
        const float* row = trace.convolved.row(first + i / part.columns);
        tile.v[i / part.columns * s.value_dim + part.first + i % part.columns] =
            row[channels.value + i % part.columns];
    }
    if (thread >= rows) return;
    tile.beta[thread] = trace.beta.row(first + thread)[h];
    tile.alpha[thread] = trace.decay.row(first + thread)[h];
}

// Block (value head, some of its columns, layer).
template <typename Memory>
__global__ void __launch_bounds__(Memory::kThreads)
    replay_heads(const __grid_constant__ Replay args) {
    constexpr int kThreads = Memory::kThreads;
    follow_earlier_kernels();
    const std::int64_t count = args.kept.wanted();
    if (count == 0) return;
    const op::ReplayedLayer& layer = args.layer[blockIdx.z];
    const op::DeltaShape& shape = args.shape;
    const auto h = static_cast<int>(blockIdx.x);
    const HeadPart part(shape, Memory::kColumns);
    DeltaTile tile(reinterpret_cast<float*>(shared_bytes()), shape);
    const std::int64_t at = std::int64_t{h} * shape.key_dim * shape.value_dim;
    Memory memory(shape, layer.from.memory + at, layer.to.memory + at);
#pragma unroll 1
    for (std::int64_t first = 0; first < count; first += kDeltaRows) {
        const auto rows = static_cast<int>(min(std::int64_t{kDeltaRows}, count - first));
        if (first != 0) __syncthreads();
        load_traced<kThreads>(args, layer.trace, tile, h, part, first, rows);
        __syncthreads();
        make_units<kThreads>(tile, shape.key_dim, rows);
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < rows; ++i) memory.template step<false>(tile, i);
    }
    memory.finish();
    keep_history<kThreads>(shape, args.order, h, part, layer.from.history, layer.to.history,
                           layer.trace.projected, count);
}

void check(const op::DeltaReplay& args) {
    check_shape(args.shape);
    for (const op::ReplayedLayer& layer : args.layers) {
        STRATA_CHECK(layer.trace.fits(args.shape));
        STRATA_CHECK(args.kept.fit(layer.trace.projected.rows));
    }
}

bool is_aligned(const op::ReplayedLayer& layer) {
    return in_fours(layer.from.memory) && in_fours(layer.to.memory);
}

// The first of the layers that a launch takes: sums are those of the form that DeltaNet has for
// memories that lie so.
std::span<const op::ReplayedLayer> alike(std::span<const op::ReplayedLayer> layers) {
    const auto differs = [&](const op::ReplayedLayer& layer) {
        return is_aligned(layer) != is_aligned(layers.front());
    };
    const auto count = std::find_if(layers.begin(), layers.end(), differs) - layers.begin();
    return layers.first(std::min<std::size_t>(static_cast<std::size_t>(count), kLayersMost));
}

void launch_layers(Queue& queue, const op::DeltaReplay& args,
                   std::span<const op::ReplayedLayer> layers) {
    const op::DeltaShape& shape = args.shape;
    Replay all{.layer = {}, .kept = args.kept, .shape = shape, .order = args.order};
    std::copy(layers.begin(), layers.end(), all.layer.begin());
    with_delta_memory(shape, is_aligned(layers.front()), [&]<typename Memory>() {
        const int parts =
            Memory::kColumns == 0 ? 1 : shape.value_dim / std::max(Memory::kColumns, 1);
        launch_dependent(queue,
                         {dim3(static_cast<unsigned>(shape.value_heads),
                               static_cast<unsigned>(parts), static_cast<unsigned>(layers.size())),
                          Memory::kThreads, delta_tile_bytes(shape)},
                         replay_heads<Memory>, all);
    });
}

}  // namespace

void delta_replay(const op::DeltaReplay& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    for (auto rest = args.layers; !rest.empty();) {
        const auto now = alike(rest);
        launch_layers(own, args, now);
        rest = rest.subspan(now.size());
    }
}

}  // namespace strata::cuda
