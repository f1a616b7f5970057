// Bounded by reading the weights. A warp has one weight row, all of which that its lanes need next
// is on its way at once, the first of it before earlier kernels have ended; blocks are small and
// many, so that while some begin or end others read.
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

// One weight row with input rows.
struct RowJob {
    const std::byte* row;
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

template <int kTile>
__device__ void store_row(const RowJob& job, int first, float (&sums)[kTile]) {
#pragma unroll
    for (int t = 0; t < kTile; ++t) {
        const float sum = warp_sum(sums[t]);
        if (threadIdx.x % kWarp == 0 && first + t < job.count) {
            job.out[(first + t) * job.out_stride] = job.factor == 1.0f ? sum : sum * job.factor;
        }
    }
}

template <quant::Type kType, int kTile>
__device__ void multiply_blocks(const RowJob& job) {
    using Own = BlockUnits<kType>;
    constexpr int kSteps = kTile <= 2 ? 3 : 2;
    constexpr int kBlock = block_fields(kType).values;
    const Planes<kType> row{job.row, job.cols / kBlock, job.align};
    const int units = job.cols / kUnit;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    typename Own::Raw raw[kSteps];
    const auto load = [&](int unit) {
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
            if (unit + i * kWarp < units) Own::load(row, unit + i * kWarp, raw[i]);
        }
    };
    load(lane);
    wait_for_earlier_kernels();
    for (int first = 0; first < job.count; first += kTile) {
        float sums[kTile] = {};
        for (int unit = lane; unit < units; unit += kSteps * kWarp) {
            if (first != 0 || unit != lane) load(unit);
#pragma unroll
            for (int i = 0; i < kSteps; ++i) {
                const int own = unit + i * kWarp;
                if (own >= units) break;
                Unit weight;
                Own::decode(raw[i], own, job.book, weight);
#pragma unroll
                for (int t = 0; t < kTile; ++t) {
                    const RoundedRow x{job.made + job.x_row(first + t) * job.made_bytes, units};
                    const uint4 low = x.low(own);
                    const uint4 high = x.high(own);
                    const int codes[8] = {static_cast<int>(low.x),  static_cast<int>(low.y),
                                          static_cast<int>(low.z),  static_cast<int>(low.w),
                                          static_cast<int>(high.x), static_cast<int>(high.y),
                                          static_cast<int>(high.z), static_cast<int>(high.w)};
                    const int have = Own::kOffset != 0 || Own::kMinima ? x.sums(own) : 0;
                    sums[t] = add_unit<Own>(weight, codes, have, x.scale(own), sums[t]);
                }
            }
        }
        store_row(job, first, sums);
    }
}

template <quant::Type kType, int kTile>
__device__ void multiply_values(const RowJob& job) {
    constexpr int kSteps = kType == quant::Type::f32 ? 2 : 4;
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
                if (own >= pieces) break;
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
        store_row(job, first, sums);
    }
}

template <int kTile>
__device__ void multiply_row(quant::Type type, const RowJob& job) {
    // Most experts of a window have one of its rows.
    if (kTile > 1 && job.count == 1) return multiply_row<1>(type, job);
    switch (type) {
#define STRATA_CASE(name)   \
    case quant::Type::name: \
        return multiply_blocks<quant::Type::name, kTile>(job);
        STRATA_ROW_BLOCKS(STRATA_CASE)
#undef STRATA_CASE
        case quant::Type::f32:
            return multiply_values<quant::Type::f32, kTile>(job);
        case quant::Type::bf16:
            return multiply_values<quant::Type::bf16, kTile>(job);
        default:
            return;
    }
}

// Blocks [part.first_block, ...) have kWarps rows each of the part's segments, one after another.
template <int kTile>
__global__ void __launch_bounds__(kThreads, kTile <= 2 ? 8 : 5)
    rows_kernel(const __grid_constant__ Products all) {
    let_later_kernel_begin();
    int own = 0;
    while (own + 1 < all.parts && static_cast<int>(blockIdx.x) >= all.part[own + 1].first_block) {
        ++own;
    }
    const Part& part = all.part[own];
    const int across = (part.rows + kWarps - 1) / kWarps;
    const int block = static_cast<int>(blockIdx.x) - part.first_block;
    const int segment = block / across;
    const int row = block % across * kWarps + static_cast<int>(threadIdx.x) / kWarp;

    auto* book = reinterpret_cast<unsigned*>(shared_bytes());
    const int book_words = codebook_bytes(part.type) / 4;
    if (book_words != 0) {
        const unsigned* from = codebook_of(part.type);
        for (int i = static_cast<int>(threadIdx.x); i < book_words; i += kThreads) {
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
    multiply_row<kTile>(part.type,
                        {.row = weight + std::int64_t{row} * part.row_bytes,
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
                         .out_stride = part.out_stride});
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
    int blocks = 0;
    int book = 0;
    int most = 1;
    for (int i = 0; i < products.parts; ++i) {
        Part& part = products.part[i];
        part.first_block = blocks;
        blocks += (part.rows + kWarps - 1) / kWarps * part.segments;
        book = std::max(book, codebook_bytes(part.type));
        most = std::max(most, part.members_most);
    }
    const Grid grid{.blocks = dim3(static_cast<unsigned>(blocks)),
                    .threads = kThreads,
                    .shared_bytes = static_cast<std::size_t>(book),
                    .dependent = true};
    const auto kernel = most == 1   ? rows_kernel<1>
                        : most == 2 ? rows_kernel<2>
                        : most <= 4 ? rows_kernel<4>
                                    : rows_kernel<8>;
    launch(queue, grid, kernel, products);
}

}  // namespace strata::cuda
