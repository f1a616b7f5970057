// Bounded by reading the matrices, all at once: a block has a few columns of y, a warp of it one
// expert's rows of them. Each warp rounds its own hidden row, which costs less than a launch.
#include "backend/cuda/experts_down.h"

#include <algorithm>

#include "backend/cuda/codebooks.cuh"
#include "backend/cuda/few_rows.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/rows.h"

namespace strata::cuda {
namespace {

constexpr int kWarpsMax = 16;

// What of a launch's shared memory is whose.
struct BlockShare {
    int rows;          // of the matrices, a block
    int lanes;         // of a row
    int made_bytes;    // of a warp's hidden row
    int routed_bytes;  // of its weights
    int shared_bytes;
    int book_bytes;

    explicit BlockShare(const Contraction& args)
        : rows(kWarp / lanes_of_row(args.routed.cols)),
          lanes(lanes_of_row(args.routed.cols)),
          made_bytes(
              static_cast<int>(std::max(operand_bytes(args.routed.group, args.routed.cols),
                                        operand_bytes(args.shared.group, args.shared.cols)))),
          routed_bytes(staged_bytes(rows * args.routed.row_bytes)),
          shared_bytes(staged_bytes(rows * args.shared.row_bytes)),
          book_bytes(args.book_bytes) {}
    // The warp of the shared matrix is the last.
    std::size_t all(int warps) const {
        return static_cast<std::size_t>(book_bytes + warps * own_bytes() - routed_bytes +
                                        shared_bytes);
    }
    // Products, barrier, hidden row and weights of a warp.
    __host__ __device__ int own_bytes() const {
        return kWarp * static_cast<int>(sizeof(float)) + kStageAlign + made_bytes + routed_bytes;
    }
    __device__ std::byte* own(int warp) const {
        return cuda::shared_bytes() + book_bytes + warp * own_bytes();
    }
    __device__ float* products(int warp) const { return reinterpret_cast<float*>(own(warp)); }
    __device__ std::byte* made(int warp) const {
        return own(warp) + kWarp * sizeof(float) + kStageAlign;
    }
    __device__ Stage stage(int warp) const {
        return {.to = made(warp) + made_bytes,
                .barrier = reinterpret_cast<std::uint64_t*>(own(warp) + kWarp * sizeof(float))};
    }
};

// What a warp multiplies: slot `slot` of row t, the shared matrix after the last one.
struct Member {
    const Part& part;
    const InputRows& hidden;
    const std::byte* made;  // rows; null: `hidden` is to be rounded
    int row;                // of either
    const std::byte* weight;
    float factor;
    float share;

    __device__ static Member find(const Contraction& args, std::int64_t t, int slot) {
        if (slot == args.active) {
            return {args.shared,           args.shared_hidden, args.shared_made,
                    static_cast<int>(t),   args.shared.weight, args.shared.factor,
                    sigmoid(args.scale[t])};
        }
        const std::int64_t at = t * args.active + slot;
        const int expert = args.chosen[at];
        const Part& part = args.routed;
        return {part,
                args.hidden,
                args.made,
                args.place[at],
                part.at[expert],
                part.factors == nullptr ? part.factor : part.factors[expert],
                args.share[at]};
    }
    // Its rounded row.
    __device__ void take(std::byte* to) const {
        if (made != nullptr) {
            const auto bytes = static_cast<int>(operand_bytes(part.group, part.cols));
            const auto* from = reinterpret_cast<const uint4*>(made + std::int64_t{row} * bytes);
            const int lane = static_cast<int>(threadIdx.x) % kWarp;
            for (int i = lane; i < bytes / 16; i += kWarp) {
                reinterpret_cast<uint4*>(to)[i] = from[i];
            }
            return;
        }
#pragma unroll 1
        for (int c = 0; c < part.cols; c += kTogether) {
            round_columns(hidden, row, c, part.group, to);
        }
    }
};

// Block (rows of the matrices, row of y).
__global__ void __launch_bounds__(kWarpsMax* kWarp)
    down_kernel(const __grid_constant__ Contraction args, BlockShare share) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const std::int64_t t = blockIdx.y;
    const int first = static_cast<int>(blockIdx.x) * share.rows;
    const int there = min(share.rows, args.routed.rows - first);
    // The routing is older than the kernel before.
    const Member own = Member::find(args, t, warp);
    Stage stage = share.stage(warp);
    __shared__ float shares[kWarpsMax];
    if (threadIdx.x % kWarp == 0) shares[warp] = own.share;
    stage.prepare();
    stage.begin(own.weight + std::int64_t{first} * own.part.row_bytes, there * own.part.row_bytes);
    auto* book = reinterpret_cast<unsigned*>(cuda::shared_bytes());
    if (share.book_bytes != 0) {
        copy_few_rows_book(share.book_bytes, book);
        __syncthreads();
    }
    follow_earlier_kernels();
    std::byte* made = share.made(warp);
    own.take(made);
    __syncwarp();
    stage.wait();
    multiply_blocks<1>(own.part.type, {.rows_at = stage.to,
                                       .rows = there,
                                       .row_bytes = own.part.row_bytes,
                                       .align = align_of(stage.to, own.part.row_bytes),
                                       .lanes = share.lanes,
                                       .cols = own.part.cols,
                                       .book = book,
                                       .made = made,
                                       .made_bytes = 0,
                                       .x_rows = nullptr,
                                       .first_x = 0,
                                       .count = 1,
                                       .factor = own.factor,
                                       .out = share.products(warp),
                                       .out_stride = 0});
    __syncthreads();
    const auto row = static_cast<int>(threadIdx.x);
    if (row >= there) return;
    float sum = 0.0f;
    for (int s = 0; s <= args.active; ++s) sum += shares[s] * share.products(s)[row];
    args.y.row(t)[first + row] = sum;
}

}  // namespace

bool has_down_rows(const Contraction& args) {
    return has_rows(args.routed) && has_rows(args.shared) && args.routed.group != kPlain &&
           args.shared.group != kPlain && args.active < kWarpsMax &&
           lanes_of_row(args.routed.cols) == lanes_of_row(args.shared.cols) &&
           codebook_bytes(args.shared.type) == 0 &&
           BlockShare(args).all(args.active + 1) <= kFewRowsBytesMost;
}

void launch_down_rows(Queue& queue, const Contraction& args) {
    const BlockShare share(args);
    const int warps = args.active + 1;
    launch(queue,
           {.blocks = dim3(static_cast<unsigned>((args.y.cols + share.rows - 1) / share.rows),
                           static_cast<unsigned>(args.rows)),
            .threads = static_cast<unsigned>(warps * kWarp),
            .shared_bytes = share.all(warps),
            .dependent = true},
           down_kernel, args, share);
}

}  // namespace strata::cuda
