// The kernel of contract.h. Bounded by reading the down matrices: each block has some rows of y,
// and with them the same rows of all matrices, so that the sum over experts stays in the block.
#pragma once

#include "backend/cuda/contract.h"
#include "backend/cuda/products.cuh"

namespace strata::cuda {

// What a block's warps share: products [members + T, width] of `width` rows of y.
struct Panel {
    int first;
    int width;
    float* products;
};

// Products of rows of the panel with every one of `count` rows of x, of which a warp takes as many
// as it has lanes for.
__device__ inline void fill_panel(const Part& part, const Panel& panel, const std::byte* x,
                                  int count, const int* experts, const unsigned* book, float* to) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int at_once = kWarp / part.lanes;
    const int groups = (panel.width + part.together - 1) / part.together;
    const int pieces = count * groups;
    const std::int64_t x_bytes = operand_bytes(part.group, part.cols);
    for (int i = static_cast<int>(threadIdx.x) / kWarp * at_once; i < pieces;
         i += kProductWarps * at_once) {
        const int wanted = i + lane / part.lanes;
        const int piece = wanted < pieces ? wanted : pieces - 1;
        const int member = piece / groups;
        const int row = piece % groups * part.together;
        const int expert = experts == nullptr ? 0 : experts[member];
        const std::byte* weight = experts == nullptr ? part.weight : part.at[expert];
        multiply_rows<1, 1>(part.type, false,
                            {.row = weight + std::int64_t{panel.first + row} * part.row_bytes,
                             .rows = panel.width - row,
                             .row_bytes = part.row_bytes,
                             .cols = part.cols,
                             .first = lane % part.lanes,
                             .last = part.units,
                             .lanes = part.lanes,
                             .align = align_of(weight, part.row_bytes),
                             .x = x + member * x_bytes,
                             .x_bytes = x_bytes,
                             .x_rows = nullptr,
                             .x_count = 1,
                             .book = book,
                             .factor = part.factors == nullptr ? part.factor : part.factors[expert],
                             .out = to + member * panel.width + row,
                             .out_stride = 0,
                             .store = wanted < pieces && lane % part.lanes == 0});
    }
}

__global__ void __launch_bounds__(kProductThreads, 1)
    contraction_kernel(const __grid_constant__ Contraction args) {
    follow_earlier_kernels();
    const auto all = static_cast<int>(args.y.cols);
    const auto begin = static_cast<int>(std::int64_t{all} * blockIdx.x / gridDim.x);
    const auto end = static_cast<int>(std::int64_t{all} * (blockIdx.x + 1) / gridDim.x);
    const int members = args.rows * args.active;
    const int most = (all + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
    auto* products = reinterpret_cast<float*>(shared_bytes() + args.book_bytes);
    const Panel panel{begin, end - begin, products};
    const int before_x = ((members + args.rows) * most * 4 + 15) / 16 * 16;
    BlockMemory memory{reinterpret_cast<unsigned*>(shared_bytes()),
                       shared_bytes() + args.book_bytes + before_x};
    memory.take_book(args.routed.type);
    if (args.made == nullptr) memory.take_x(args.hidden, members, args.routed.group);
    fill_panel(args.routed, panel, args.made == nullptr ? memory.x : args.made, members,
               args.own_expert, memory.book, products);
    memory.take_book(args.shared.type);
    memory.group = -1;
    if (args.shared_made == nullptr) {
        memory.take_x(args.shared_hidden, args.rows, args.shared.group);
    }
    fill_panel(args.shared, panel, args.shared_made == nullptr ? memory.x : args.shared_made,
               args.rows, nullptr, memory.book, products + members * panel.width);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < args.rows * panel.width; i += kProductThreads) {
        const int t = i / panel.width;
        const int c = i % panel.width;
        float sum = 0.0f;
        for (int s = t * args.active; s < (t + 1) * args.active; ++s) {
            sum += args.share[s] * products[args.place[s] * panel.width + c];
        }
        const float shared = products[(members + t) * panel.width + c];
        args.y.row(t)[begin + c] = sum + sigmoid(args.scale[t]) * shared;
    }
}

}  // namespace strata::cuda
