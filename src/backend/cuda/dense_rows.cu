// Bounded by reading the weights. A lane asks for all that it multiplies before earlier kernels
// have ended, so there is one trip to memory; x then lies in shared memory. Parameters are few and
// code is short: both are read for the first time in every launch.
#include "backend/cuda/dense_rows.h"

#include <algorithm>

#include "backend/cuda/dense_rows.cuh"
#include "backend/cuda/dense_window.h"
#include "base/check.h"

namespace strata::cuda {
namespace {

// Where a window has more rows or a launch more blocks, rows are rounded before: doing so in every
// block then costs more than a launch.
constexpr int kOwnRowsMost = 1;
constexpr int kOwnBlocksMost = 4096;
constexpr int kXBytesMost = 57344;  // of rounded input rows in shared memory

// Some of the input rows, rounded, to shared memory. All of the block call it.
template <typename Shape>
__device__ __forceinline__ void bring_rows(const DenseArgs& args, int begin, int rows,
                                           std::byte* to) {
    const std::byte* from = args.made + std::int64_t{begin} * Shape::x_bytes;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x) * 16; i < rows * Shape::x_bytes;
         i += dense::kThreads * 16) {
        copy_shared(to + i, from + i);
    }
    wait_shared();
    __syncthreads();
}

// A row as it lies in shared memory.
struct SharedRow {
    const float* data;
    int cols;

    __device__ void eight(std::int64_t, int column, float* to) const {
        load_eight(data + column, to);
    }
};

// The same of the one input row, which the block rounds. A thread reads what it copied itself.
template <typename Shape>
__device__ __forceinline__ void round_row(const DenseArgs& args, std::byte* to) {
    constexpr int kStep = dense::kThreads * kPiece;
    std::byte* const raw = to + Shape::x_bytes;
    const SharedRow row{reinterpret_cast<const float*>(raw), Shape::cols};
    const auto thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < (Shape::cols + kStep - 1) / kStep; ++i) {
        const int c = thread * kPiece + i * kStep;
        if (c < Shape::cols) {
            const auto* from = reinterpret_cast<const std::byte*>(args.x + c);
            copy_shared(raw + c * 4, from);
            copy_shared(raw + c * 4 + 16, from + 16);
        }
    }
    wait_shared();
#pragma unroll 1
    for (int c = thread / kWarp * kTogether; c < Shape::cols; c += dense::kWarps * kTogether) {
        round_columns(row, 0, c, args.group, to);
    }
    __syncthreads();
}

// sums = the products of the units that a lane holds.
template <quant::Type kType, typename Shape, int kTile>
__device__ __forceinline__ void multiply_units(
    const typename BlockUnits<kType>::Raw (&raw)[Shape::held], const std::byte* const (&x)[kTile],
    int lane, float (&sums)[1][kTile]) {
    using Own = BlockUnits<kType>;
#pragma unroll
    for (int u = 0; u < Shape::held; ++u) {
        Unit weight[1];
        Own::decode(raw[u], 0, nullptr, weight[0]);
        add_rows<Own, kTile, 1>(weight, x, Shape::units, lane + u * Shape::lanes, sums);
    }
}

// kWarp / lanes rows of blocks a warp.
template <quant::Type kType, typename Shape, int kTile, bool kOwnX>
__device__ __forceinline__ void multiply_held(const DenseArgs& args, const DensePart& part,
                                              int block) {
    using Own = BlockUnits<kType>;
    constexpr BlockFields kFields = block_fields(kType);
    static_assert(kFields.values == kUnit);
    const auto thread = static_cast<int>(threadIdx.x);
    const int lane = thread % Shape::lanes;
    const int row = (block * dense::kThreads + thread) / Shape::lanes;
    const std::byte* from =
        part.weight + std::int64_t{min(row, part.rows - 1)} * (Shape::units * kFields.bytes);
    typename Own::Raw raw[Shape::held];
#pragma unroll
    for (int u = 0; u < Shape::held; ++u) {
        Own::load(EarlyPlanes<kType>{from, Shape::units}, lane + u * Shape::lanes, raw[u]);
    }
    follow_earlier_kernels();
    std::byte* const held = shared_bytes();
#pragma unroll 1
    for (int begin = 0; begin < (kOwnX ? 1 : args.x_rows); begin += kOwnX ? 1 : args.x_held) {
        const int rows = kOwnX ? 1 : min(args.x_held, args.x_rows - begin);
        if constexpr (kOwnX) {
            round_row<Shape>(args, held);
        } else {
            if (begin != 0) __syncthreads();
            bring_rows<Shape>(args, begin, rows, held);
        }
#pragma unroll 1
        for (int first = 0; first < rows; first += kTile) {
            const std::byte* x[kTile];
#pragma unroll
            for (int t = 0; t < kTile; ++t) x[t] = held + min(first + t, rows - 1) * Shape::x_bytes;
            float sums[1][kTile] = {};
            multiply_units<kType, Shape, kTile>(raw, x, lane, sums);
#pragma unroll
            for (int t = 0; t < kTile; ++t) {
                float sum = sums[0][t];
#pragma unroll
                for (int by = Shape::lanes / 2; by > 0; by /= 2) {
                    sum += __shfl_xor_sync(kAllLanes, sum, by);
                }
                if (lane == 0 && row < part.rows && first + t < rows) {
                    args.store(part, begin + first + t, row, sum);
                }
            }
        }
    }
}

template <quant::Type kType, typename Shape, int kTile, bool kOwnX>
__global__ void __launch_bounds__(dense::kThreads, kTile == 1 ? 5 : 4)
    dense_kernel(const __grid_constant__ DenseArgs args) {
    const auto block = static_cast<int>(blockIdx.x);
    const int own = part_of(args, block);
    const DensePart& part = args.part[own];
    const int at = block - args.first_block[own];
    if constexpr (Shape::has_values) {
        if (part.type != kType) return multiply_values<Shape, kTile>(args, part, at);
    }
    multiply_held<kType, Shape, kTile, kOwnX>(args, part, at);
}

// Where no part has blocks.
template <typename Shape, int kTile>
__global__ void __launch_bounds__(dense::kThreads, 4)
    values_kernel(const __grid_constant__ DenseArgs args) {
    const auto block = static_cast<int>(blockIdx.x);
    const int own = part_of(args, block);
    multiply_values<Shape, kTile>(args, args.part[own], block - args.first_block[own]);
}

// The format of the parts with blocks; f32: there are none.
quant::Type block_type(const Products& products) {
    for (int i = 0; i < products.parts; ++i) {
        if (has_blocks(products.part[i].type)) return products.part[i].type;
    }
    return quant::Type::f32;
}

bool starts_aligned(const void* at, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(at) % bytes == 0;
}

// use(shape) for the shape of rows of `cols` columns, if dense_kernel has it.
template <typename Use>
bool with_shape(int cols, Use use) {
    switch (cols) {
        case Cols2560::cols:
            return use(Cols2560());
        case Cols5120::cols:
            return use(Cols5120());
        case Cols6144::cols:
            return use(Cols6144());
        default:
            return false;
    }
}

bool fits(const Part& part, const InputRows& x, quant::Type type, bool by_window) {
    if (part.expert != nullptr || part.at != nullptr || part.cols != x.cols) return false;
    if (part.exact) return false;
    if (part.x.data != x.data) return false;
    if (!starts_aligned(part.weight, kStageAlign)) return false;
    if (!has_blocks(part.type)) {
        return with_shape(part.cols, [](auto shape) { return shape.has_values; });
    }
    if (by_window) return part.type == type;
    return is_wide(type) && part.type == type && with_shape(part.cols, [](auto) { return true; });
}

int blocks_of(const Part& part, bool by_window) {
    if (!has_blocks(part.type)) return part.rows;
    const int rows = by_window ? kDenseWindowRows : dense::kThreads / lanes_of_row(part.cols);
    return (part.rows + rows - 1) / rows;
}

template <quant::Type kType, typename Shape>
void launch_shape(Queue& queue, Grid grid, DenseArgs& args) {
    args.x_held = std::min(args.x_rows, kXBytesMost / Shape::x_bytes / 4 * 4);
    grid.shared_bytes = args.made == nullptr ? Shape::x_bytes + Shape::cols * sizeof(float)
                                             : static_cast<std::size_t>(args.x_held) *
                                                   static_cast<std::size_t>(Shape::x_bytes);
    launch(queue, grid,
           args.made == nullptr ? dense_kernel<kType, Shape, 1, true>
           : args.x_rows == 1   ? dense_kernel<kType, Shape, 1, false>
           : args.x_rows == 2   ? dense_kernel<kType, Shape, 2, false>
                                : dense_kernel<kType, Shape, 4, false>,
           args);
}

void launch_values(Queue& queue, const Grid& grid, const DenseArgs& args) {
    static_assert(!Cols5120::has_values && !Cols6144::has_values);
    launch(queue, grid,
           args.x_rows == 1   ? values_kernel<Cols2560, 1>
           : args.x_rows == 2 ? values_kernel<Cols2560, 2>
                              : values_kernel<Cols2560, 4>,
           args);
}

}  // namespace

bool has_dense_rows(const Queue& queue, const Products& products) {
    const InputRows& x = products.x;
    if (x.up != nullptr || x.stride % kValueFour != 0) return false;
    if (!starts_aligned(x.data, sizeof(float4))) return false;
    const quant::Type type = block_type(products);
    const bool by_window = has_dense_window(queue, products.x_rows, x.cols, type);
    return std::all_of(products.part, products.part + products.parts,
                       [&](const Part& part) { return fits(part, x, type, by_window); });
}

bool dense_rows_need_made(const Products& products) {
    std::int64_t blocks = 0;
    for (int i = 0; i < products.parts; ++i) blocks += blocks_of(products.part[i], false);
    return products.x_rows > kOwnRowsMost || blocks > kOwnBlocksMost;
}

void launch_dense_rows(Queue& queue, const Products& products) {
    DenseArgs args{};
    args.parts = products.parts;
    args.x_rows = products.x_rows;
    args.x = products.x.data;
    args.x_stride = products.x.stride;
    const quant::Type type = block_type(products);
    const bool by_window = has_dense_window(queue, products.x_rows, products.x.cols, type);
    int blocks = 0;
    for (int i = 0; i < products.parts; ++i) {
        const Part& part = products.part[i];
        args.first_block[i] = blocks;
        args.part[i] = {.weight = part.weight,
                        .out = part.out,
                        .rows = part.rows,
                        .out_stride = static_cast<int>(part.out_stride),
                        .factor = part.factor,
                        .type = part.type};
        blocks += blocks_of(part, by_window);
        if (!has_blocks(part.type)) continue;
        args.made = part.made;
        args.group = part.group;
    }
    const Grid grid{.blocks = dim3(static_cast<unsigned>(blocks)),
                    .threads = dense::kThreads,
                    .dependent = true};
    if (by_window) return launch_dense_window(queue, args, products.x.cols, type);
    if (!has_blocks(type)) return launch_values(queue, grid, args);
    const bool known = with_shape(products.x.cols, [&](auto shape) {
        if (type == quant::Type::q8_0) {
            launch_shape<quant::Type::q8_0, decltype(shape)>(queue, grid, args);
        } else {
            launch_shape<quant::Type::q4_0, decltype(shape)>(queue, grid, args);
        }
        return true;
    });
    STRATA_CHECK(known);
}

}  // namespace strata::cuda
