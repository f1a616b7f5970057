// Products with weights of BF16 on tensor cores: bounded by reading the weights. A warp multiplies
// eight weight rows with a part of their columns, which it has of all tiles, and with up to eight
// rows of x: their first and second values are the sixteen rows of a tensor core's tile, the third
// ones another. What it needs of x it keeps; the weights after those that it multiplies are on
// their way.
#include <algorithm>

#include "backend/cuda/draft_rows.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/staging.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kTile = 8;         // weight rows of a tile
constexpr int kRowsMost = 8;     // of x
constexpr int kBatch = 10;       // times 32 columns that a lane holds of a weight row's part
constexpr int kBlocksOfOne = 2;  // of a multiprocessor, which registers are enough for

struct TilePart {
    const std::byte* weight;
    float* out;
    int rows;
    int first_tile;
    std::int64_t out_stride;
    float factor;
};

struct TileArgs {
    TilePart part[kPartsMax];
    int parts;
    int tiles;
    int x_rows;
    int cols;
    const std::byte* x;

    // Times 32 columns of a warp.
    __device__ int steps() const { return cols / kSplitColumns / kWarps; }
    __device__ const TilePart& part_of(int tile) const {
        int own = 0;
        while (own + 1 < parts && tile >= part[own + 1].first_tile) ++own;
        return part[own];
    }
};

__device__ inline int lane_row() { return static_cast<int>(threadIdx.x) % kWarp / 4; }
__device__ inline int lane_quarter() { return static_cast<int>(threadIdx.x) % 4; }

// What a block goes through: its tiles, of each the batches.
struct Place {
    int tile;
    int step = 0;  // the batch's first

    __device__ void advance(const TileArgs& args) {
        step += kBatch;
        if (step < args.steps()) return;
        step = 0;
        tile += static_cast<int>(gridDim.x);
    }
};

// Of weight row lane_row() of a tile: eight columns of every 32.
struct Batch {
    uint4 columns[kBatch];

    __device__ void load(const TileArgs& args, const Place& place) {
        if (place.tile >= args.tiles) return;
        const TilePart& part = args.part_of(place.tile);
        const int row = min((place.tile - part.first_tile) * kTile + lane_row(), part.rows - 1);
        const int begin = own_warp() * args.steps() + place.step;
        const std::int64_t at =
            std::int64_t{row} * args.cols + begin * kSplitColumns + lane_quarter() * kSplitPiece;
        const std::byte* from = part.weight + at * 2;
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            if (place.step + i >= args.steps()) break;
            columns[i] = load_early<uint4>(from + i * kSplitColumns * 2);
        }
    }
};

// The warp's part of x.
struct HeldRows {
    uint4* data;
    int rows;

    // Of one of the values of 32 columns.
    __device__ int words() const { return rows * (kSplitColumns / kSplitPiece); }
    __device__ void bring(const TileArgs& args) {
        const int count = args.steps() * kSplitValues * words();
        data = reinterpret_cast<uint4*>(shared_bytes()) + own_warp() * count;
        const auto* from = reinterpret_cast<const uint4*>(args.x) + own_warp() * count;
#pragma unroll 4
        for (int i = static_cast<int>(threadIdx.x) % kWarp; i < count; i += kWarp) {
            copy_shared(reinterpret_cast<std::byte*>(data + i),
                        reinterpret_cast<const std::byte*>(from + i));
        }
        wait_shared();
        __syncwarp();
    }
    // Of row lane_row() of x.
    __device__ void get(int step, uint4 (&values)[kSplitValues]) const {
        const uint4* from =
            data + step * kSplitValues * words() + static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
        for (int i = 0; i < kSplitValues; ++i) {
            values[i] = lane_row() < rows ? from[i * words()] : uint4{0, 0, 0, 0};
        }
    }
};

// Of two columns of weight rows with row lane_row() of x: of its first values, of the second ones,
// and of the third ones before others that are zeros.
struct Sums {
    float nearer[4] = {};
    float rest[4] = {};

    __device__ void add(const Batch& batch, const HeldRows& x, int step, int steps) {
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            if (step + i >= steps) break;
            uint4 own[kSplitValues];
            x.get(step + i, own);
            const uint4& weight = batch.columns[i];
            add_tile_bf16(nearer, {own[0].x, own[1].x, own[0].y, own[1].y}, weight.x, weight.y);
            add_tile_bf16(rest, {own[2].x, 0, own[2].y, 0}, weight.x, weight.y);
            add_tile_bf16(nearer, {own[0].z, own[1].z, own[0].w, own[1].w}, weight.z, weight.w);
            add_tile_bf16(rest, {own[2].z, 0, own[2].w, 0}, weight.z, weight.w);
        }
    }
    __device__ float2 all() const {
        return make_float2(nearer[0] + (nearer[2] + rest[0]), nearer[1] + (nearer[3] + rest[1]));
    }
};

__global__ void __launch_bounds__(kThreads, kBlocksOfOne)
    draft_products_kernel(const __grid_constant__ TileArgs args) {
    if (!kPromptsRun) return;
    __shared__ float parts[2][kWarps][kRowsMost][kTile];
    Place next{static_cast<int>(blockIdx.x)};
    Batch coming;
    coming.load(args, next);
    follow_earlier_kernels();
    HeldRows x{nullptr, args.x_rows};
    x.bring(args);
    int turn = 0;
    Sums sums;
#pragma unroll 1
    while (next.tile < args.tiles) {
        const Place own = next;
        const Batch batch = coming;
        next.advance(args);
        coming.load(args, next);
        sums.add(batch, x, own.step, args.steps());
        if (next.tile == own.tile) continue;
        *reinterpret_cast<float2*>(&parts[turn][own_warp()][lane_row()][2 * lane_quarter()]) =
            sums.all();
        // Who comes here with the other half has left this one.
        __syncthreads();
        const int t = static_cast<int>(threadIdx.x) / kTile;
        const TilePart& part = args.part_of(own.tile);
        const int column = static_cast<int>(threadIdx.x) % kTile;
        const int row = (own.tile - part.first_tile) * kTile + column;
        if (t < args.x_rows && row < part.rows) {
            float sum = parts[turn][0][t][column];
#pragma unroll
            for (int w = 1; w < kWarps; ++w) sum += parts[turn][w][t][column];
            part.out[t * part.out_stride + row] = part.factor == 1.0f ? sum : sum * part.factor;
        }
        turn ^= 1;
        sums = {};
    }
}

// Shared memory of a block beside that of x.
constexpr std::size_t kSumsBytes = sizeof(float) * 2 * kWarps * kRowsMost * kTile;
// And what the runtime keeps of it.
constexpr std::size_t kReservedBytes = 1024;

// Rows of x that the shared memory of a block has room for; 0: not for one.
int split_rows(const Queue& queue, std::int64_t cols) {
    const std::size_t room = queue.shared_bytes_max() - kSumsBytes;
    const std::size_t rows = room / static_cast<std::size_t>(split_bytes(1, cols));
    return static_cast<int>(std::min<std::size_t>(rows, kRowsMost));
}

bool can_split(const Queue& queue, std::int64_t cols, std::span<const Product> products) {
    if (!queue.has_tensor_cores() || cols % (kSplitColumns * kWarps) != 0) return false;
    return split_rows(queue, cols) > 0 &&
           std::all_of(products.begin(), products.end(), [](const Product& product) {
               const auto at = reinterpret_cast<std::uintptr_t>(product.weight.data);
               return product.weight.type == quant::Type::bf16 && at % sizeof(uint4) == 0;
           });
}

void launch_split(Queue& queue, const DraftRows& x, int begin, std::span<const Product> products) {
    STRATA_CHECK(products.size() <= kPartsMax);
    TileArgs args{};
    args.x_rows = std::min(x.rows_most, x.rows - begin);
    args.cols = x.cols;
    args.x = x.data + split_bytes(begin, x.cols);
    for (const Product& product : products) {
        const auto rows = static_cast<int>(product.weight.rows);
        args.part[args.parts++] = {.weight = product.weight.data,
                                   .out = product.out.row(begin),
                                   .rows = rows,
                                   .first_tile = args.tiles,
                                   .out_stride = product.out.cols,
                                   .factor = product.weight.factor};
        args.tiles += (rows + kTile - 1) / kTile;
    }
    const auto bytes = static_cast<std::size_t>(split_bytes(args.x_rows, x.cols));
    const std::size_t room = queue.shared_bytes_max() / (bytes + kSumsBytes + kReservedBytes);
    const int each = room >= kBlocksOfOne ? kBlocksOfOne : 1;
    launch(queue,
           {.blocks =
                dim3(static_cast<unsigned>(std::min(args.tiles, each * queue.multiprocessors()))),
            .threads = kThreads,
            .shared_bytes = bytes,
            .dependent = true},
           draft_products_kernel, args);
}

}  // namespace

DraftRows make_plain_rows(Queue& queue, std::int64_t rows, std::int64_t cols) {
    DraftRows to{.rows = static_cast<int>(rows), .cols = static_cast<int>(cols)};
    to.data = queue.take<std::byte>(rows * cols * std::int64_t{sizeof(float)});
    return to;
}

DraftRows make_draft_rows(Queue& queue, std::int64_t rows, std::int64_t cols,
                          std::span<const Product> products) {
    DraftRows to{.rows = static_cast<int>(rows), .cols = static_cast<int>(cols)};
    to.group = group_of(products[0].weight.type);
    const bool alike = std::all_of(products.begin(), products.end(), [&](const Product& product) {
        return group_of(product.weight.type) == to.group;
    });
    std::int64_t bytes = rows * cols * std::int64_t{sizeof(float)};
    if (can_split(queue, cols, products)) {
        to.form = RowForm::split;
        // Of more rows than a launch takes the launches have as many each.
        const int most = split_rows(queue, cols);
        const int launches = (to.rows + most - 1) / most;
        to.rows_most = (to.rows + launches - 1) / launches;
        bytes = split_bytes(rows, cols);
    } else if (alike && to.group != kPlain) {
        to.form = RowForm::rounded;
        bytes = rows * operand_bytes(to.group, cols);
    }
    to.data = queue.take<std::byte>(bytes);
    return to;
}

void project_draft(Queue& queue, const DraftRows& x, std::span<const Product> products) {
    if (x.form == RowForm::plain) {
        return project(queue, x.plain(), products);
    }
    if (x.form == RowForm::rounded) {
        return project_rounded(queue, {nullptr, x.rows, x.cols}, x.data, products);
    }
    for (int begin = 0; begin < x.rows; begin += x.rows_most) {
        launch_split(queue, x, begin, products);
    }
}

}  // namespace strata::cuda
