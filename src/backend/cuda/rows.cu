// Bounded by reading the weights. A warp has a few weight rows, of which each lane reads a unit at
// a time, the first before earlier kernels have ended; blocks are small and many, so that while
// some begin or end others read.
#include "backend/cuda/rows.h"

#include <algorithm>
#include <span>

#include "backend/cuda/codebooks.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/row_products.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;

// use(name) for the formats of blocks that have code here.
#define STRATA_ROW_BLOCKS(use) use(q8_0) use(q4_0) use(q2_0) use(iq3_xxs)

// Of blocks, that a warp takes together: what it reads of x serves all of them.
constexpr int kRows = 4;

constexpr int rows_of_warp(quant::Type type) { return block_fields(type).values == 0 ? 1 : kRows; }

// Some weight rows with input rows.
struct RowJob {
    const std::byte* row;
    int rows;  // that are there, at least 1
    int row_bytes;
    int cols;
    int align;
    const unsigned* book;
    const InputRows* x;
    const std::byte* made;  // of rounded rows
    std::int64_t made_bytes;
    const int* x_rows;  // null: first_x, first_x + 1, ...
    int first_x;
    int count;
    float factor;
    float* out;
    std::int64_t out_stride;

    __device__ int x_row(int t) const {
        const int own = t < count ? t : count - 1;
        return x_rows == nullptr ? first_x + own : x_rows[own];
    }
};

template <int kCount, int kTile>
__device__ void store_rows(const RowJob& job, int first, const float* sums) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int t = 0; t < kTile; ++t) {
        float own = 0.0f;
#pragma unroll
        for (int r = 0; r < kCount; ++r) {
            const float sum = warp_sum(sums[r * kTile + t]);
            if (lane == r) own = sum;
        }
        if (lane < kCount && lane < job.rows && first + t < job.count) {
            job.out[(first + t) * job.out_stride + lane] =
                job.factor == 1.0f ? own : own * job.factor;
        }
    }
}

// kAlign: of the rows, where it is known; else 0.
template <quant::Type kType, int kTile, int kAlign>
__device__ void multiply_blocks(const RowJob& job) {
    using Own = BlockUnits<kType>;
    constexpr int kBlock = block_fields(kType).values;
    const int units = job.cols / kUnit;
    const int blocks = job.cols / kBlock;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    typename Own::Raw raw[kRows];
    const auto load = [&](int unit) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const std::byte* row = job.row + (r < job.rows ? r : 0) * job.row_bytes;
            Own::load(Planes<kType>{row, blocks, kAlign == 0 ? job.align : kAlign}, unit, raw[r]);
        }
    };
    if (lane < units) load(lane);
    wait_for_earlier_kernels();
    for (int first = 0; first < job.count; first += kTile) {
        const std::byte* x[kTile];
#pragma unroll
        for (int t = 0; t < kTile; ++t) x[t] = job.made + job.x_row(first + t) * job.made_bytes;
        float sums[kRows][kTile] = {};
        for (int unit = lane; unit < units; unit += kWarp) {
            if (first != 0 || unit != lane) load(unit);
            Unit weight[kRows];
#pragma unroll
            for (int r = 0; r < kRows; ++r) Own::decode(raw[r], unit, job.book, weight[r]);
#pragma unroll
            for (int t = 0; t < kTile; ++t) {
                const RoundedRow own{x[t], units};
                const uint4 low = own.low(unit);
                const uint4 high = own.high(unit);
                const int codes[8] = {static_cast<int>(low.x),  static_cast<int>(low.y),
                                      static_cast<int>(low.z),  static_cast<int>(low.w),
                                      static_cast<int>(high.x), static_cast<int>(high.y),
                                      static_cast<int>(high.z), static_cast<int>(high.w)};
                const int have = Own::kOffset != 0 || Own::kMinima ? own.sums(unit) : 0;
                const float scale = own.scale(unit);
#pragma unroll
                for (int r = 0; r < kRows; ++r) {
                    sums[r][t] = add_unit<Own>(weight[r], codes, have, scale, sums[r][t]);
                }
            }
        }
        store_rows<kRows, kTile>(job, first, &sums[0][0]);
    }
}

// One row: there are few, and what a lane needs of it is on its way at once.
template <quant::Type kType, int kTile>
__device__ void multiply_values(const RowJob& job) {
    constexpr int kSteps = 5;
    const int pieces = (job.cols + kPiece - 1) / kPiece;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    Piece<kType> weight[kSteps];
    const auto load = [&](int piece) {
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
            const int own = piece + i * kWarp;
            if (own < pieces) weight[i].load(job.row, own, job.cols, job.align);
        }
    };
    load(lane);
    wait_for_earlier_kernels();
    for (int first = 0; first < job.count; first += kTile) {
        float sums[kTile] = {};
        for (int piece = lane; piece < pieces; piece += kSteps * kWarp) {
            if (first != 0 || piece != lane) load(piece);
#pragma unroll
            for (int i = 0; i < kSteps; ++i) {
                const int own = piece + i * kWarp;
                if (own >= pieces) continue;
#pragma unroll
                for (int t = 0; t < kTile; ++t) {
                    float x[kPiece];
                    job.x->eight(job.x_row(first + t), own * kPiece, x);
#pragma unroll
                    for (int j = 0; j < kPiece; ++j) {
                        sums[t] = __fmaf_rn(weight[i].at(j), x[j], sums[t]);
                    }
                }
            }
        }
        store_rows<1, kTile>(job, first, sums);
    }
}

template <quant::Type kType, int kTile>
__device__ void multiply_aligned(const RowJob& job) {
    constexpr bool kWide = kType == quant::Type::q8_0 || kType == quant::Type::q4_0;
    if (kWide && job.align == 16) return multiply_blocks < kType, kTile, kWide ? 16 : 0 > (job);
    multiply_blocks<kType, kTile, 0>(job);
}

template <quant::Type kType, int kTile>
__device__ __forceinline__ void multiply_job(const RowJob& job) {
    if constexpr (block_fields(kType).values == 0) {
        multiply_values<kType, kTile>(job);
    } else {
        multiply_aligned<kType, kTile>(job);
    }
}

// Blocks from part.first_block on have the rows of kWarps warps each of the part's segments, one
// after another.
template <quant::Type kType, int kTile>
__global__ void __launch_bounds__(kThreads, kTile == 1 ? 6 : 4)
    rows_kernel(const __grid_constant__ Products all) {
    let_later_kernel_begin();
    int own = 0;
    while (own + 1 < all.parts && static_cast<int>(blockIdx.x) >= all.part[own + 1].first_block) {
        ++own;
    }
    const Part& part = all.part[own];
    constexpr int kOwnRows = rows_of_warp(kType);
    constexpr int kBlockRows = kWarps * kOwnRows;
    const int across = (part.rows + kBlockRows - 1) / kBlockRows;
    const int block = static_cast<int>(blockIdx.x) - part.first_block;
    const int segment = block / across;
    const int row = block % across * kBlockRows + static_cast<int>(threadIdx.x) / kWarp * kOwnRows;

    auto* book = reinterpret_cast<unsigned*>(shared_bytes());
    constexpr int kBookWords = codebook_bytes(kType) / 4;
    if constexpr (kBookWords != 0) {
        const unsigned* from = codebook_of(kType);
        for (int i = static_cast<int>(threadIdx.x); i < kBookWords; i += kThreads) {
            book[i] = from[i];
        }
        __syncthreads();
    }
    const bool routed = part.expert != nullptr;
    if (routed) wait_for_earlier_kernels();
    if (row >= part.rows || (routed && segment >= *part.used)) {
        wait_for_earlier_kernels();
        return;
    }
    const int expert = routed ? part.expert[segment] : 0;
    const std::byte* weight = routed ? part.at[expert] : part.weight;
    const int begin = part.first == nullptr ? 0 : part.first[segment];
    const int end = part.first == nullptr ? part.x_rows : part.first[segment + 1];
    const std::int64_t made_bytes = operand_bytes(part.group, part.cols);
    const RowJob job = {.row = weight + std::int64_t{row} * part.row_bytes,
                        .rows = part.rows - row,
                        .row_bytes = part.row_bytes,
                        .cols = part.cols,
                        .align = align_of(weight, part.row_bytes),
                        .book = book,
                        .x = &part.x,
                        .made = part.made,
                        .made_bytes = made_bytes,
                        .x_rows = part.x_row == nullptr ? nullptr : part.x_row + begin,
                        .first_x = begin,
                        .count = end - begin,
                        .factor = part.factors == nullptr ? part.factor : part.factors[expert],
                        .out = part.out + begin * part.out_stride + row,
                        .out_stride = part.out_stride};
    // Most experts of a window have one of its rows.
    if (kTile > 1 && job.count == 1) {
        multiply_job<kType, 1>(job);
    } else {
        multiply_job<kType, kTile>(job);
    }
}

constexpr int kMakeThreads = 256;
constexpr int kMakesMax = 4;

// Input rows that one launch makes.
struct RowsToMake {
    InputRows x;
    int rows = 0;
    int group = kPlain;
    std::byte* to = nullptr;  // [rows, operand_bytes]
};
struct MakeList {
    RowsToMake item[kMakesMax];
};

__global__ void __launch_bounds__(kMakeThreads) make_kernel(const __grid_constant__ MakeList list) {
    let_later_kernel_begin();
    wait_for_earlier_kernels();
    const RowsToMake& item = list.item[blockIdx.y];
    const int warp = static_cast<int>(blockIdx.x * kMakeThreads + threadIdx.x) / kWarp;
    make_operand(item.x, item.rows, item.group, warp,
                 static_cast<int>(gridDim.x) * kMakeThreads / kWarp, item.to);
}

// Makes each, and gives it memory of the queue.
void make_all(Queue& queue, std::span<RowsToMake> list) {
    STRATA_CHECK(list.size() <= static_cast<std::size_t>(kMakesMax));
    if (list.empty()) return;
    MakeList all;
    std::int64_t most = 1;
    for (std::size_t i = 0; i < list.size(); ++i) {
        RowsToMake& item = list[i];
        item.to = queue.take<std::byte>(item.rows * operand_bytes(item.group, item.x.cols));
        most =
            std::max(most, std::int64_t{item.rows} * ((item.x.cols + kTogether - 1) / kTogether));
        all.item[i] = item;
    }
    const std::int64_t blocks = (most * kWarp + kMakeThreads - 1) / kMakeThreads;
    launch(queue,
           {.blocks = dim3(static_cast<unsigned>(std::min(blocks, kBlocksMax)),
                           static_cast<unsigned>(list.size())),
            .threads = kMakeThreads,
            .dependent = true},
           make_kernel, all);
}

// Gives the parts with rounded rows theirs, which those of the same x share.
void make_rows_of(Queue& queue, Products& products) {
    RowsToMake wanted[kMakesMax];
    int count = 0;
    int of_part[kPartsMax];
    for (int i = 0; i < products.parts; ++i) {
        const Part& part = products.part[i];
        of_part[i] = -1;
        if (part.group == kPlain) continue;
        int at = 0;
        while (at < count && (wanted[at].group != part.group || wanted[at].x.data != part.x.data)) {
            ++at;
        }
        STRATA_CHECK(at < kMakesMax);
        if (at == count) wanted[count++] = {part.x, part.x_rows, part.group, nullptr};
        of_part[i] = at;
    }
    make_all(queue, {wanted, static_cast<std::size_t>(count)});
    for (int i = 0; i < products.parts; ++i) {
        if (of_part[i] >= 0) products.part[i].made = wanted[of_part[i]].to;
    }
}

template <quant::Type kType>
void launch_type(Queue& queue, const Products& products, const Grid& grid, int window) {
    // Wider windows take their weights from the nearest cache again.
    launch(queue, grid,
           window == 1   ? rows_kernel<kType, 1>
           : window == 2 ? rows_kernel<kType, 2>
                         : rows_kernel<kType, 4>,
           products);
}

// Parts of one type.
void launch_alike(Queue& queue, Products& products) {
    const quant::Type type = products.part[0].type;
    const int block_rows = kWarps * rows_of_warp(type);
    int blocks = 0;
    int window = 1;
    for (int i = 0; i < products.parts; ++i) {
        Part& part = products.part[i];
        part.first_block = blocks;
        blocks += (part.rows + block_rows - 1) / block_rows * part.segments;
        window = std::max(window, part.members_most);
    }
    const Grid grid{.blocks = dim3(static_cast<unsigned>(blocks)),
                    .threads = kThreads,
                    .shared_bytes = static_cast<std::size_t>(codebook_bytes(type)),
                    .dependent = true};
    switch (type) {
#define STRATA_CASE(name)   \
    case quant::Type::name: \
        return launch_type<quant::Type::name>(queue, products, grid, window);
        STRATA_ROW_BLOCKS(STRATA_CASE)
        STRATA_CASE(f32)
        STRATA_CASE(bf16)
#undef STRATA_CASE
        default:
            return;
    }
}

}  // namespace

bool has_rows(const Part& part) {
    switch (part.type) {
#define STRATA_CASE(name) case quant::Type::name:
        STRATA_ROW_BLOCKS(STRATA_CASE)
#undef STRATA_CASE
        return !part.exact;
        case quant::Type::f32:
        case quant::Type::bf16:
            return true;
        default:
            return false;
    }
}

void launch_rows(Queue& queue, Products& products) {
    make_rows_of(queue, products);
    bool done[kPartsMax] = {};
    for (int i = 0; i < products.parts; ++i) {
        if (done[i]) continue;
        Products alike;
        for (int j = i; j < products.parts; ++j) {
            if (products.part[j].type != products.part[i].type) continue;
            done[j] = true;
            alike.part[alike.parts++] = products.part[j];
        }
        launch_alike(queue, alike);
    }
}

}  // namespace strata::cuda
