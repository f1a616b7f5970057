// Bounded by reading the weights. All parts of a call go in one launch of small blocks, which ask
// for their weights before earlier kernels have ended.
#include "backend/cuda/rows.h"

#include <algorithm>
#include <span>

#include "backend/cuda/codebooks.cuh"
#include "backend/cuda/dense_rows.h"
#include "backend/cuda/few_rows.cuh"
#include "backend/cuda/launch.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kWindowMost = 16;  // input rows of one matrix

// Whether its rows go to registers. Experts' may lie anywhere.
bool goes_wide(const Part& part) {
    return is_wide(part.type) && part.at == nullptr && part.row_bytes % kStageAlign == 0 &&
           reinterpret_cast<std::uintptr_t>(part.weight) % kStageAlign == 0;
}

int task_rows(const Part& part, int window) {
    if (!has_blocks(part.type)) return 1;
    return goes_wide(part) ? kWarp / lanes_of_row(part.cols)
                           : rows_of_warp(part.cols, part.row_bytes, window);
}
int stage_bytes(const Part& part, int window) {
    return goes_wide(part) ? 0 : staged_bytes(task_rows(part, window) * part.row_bytes);
}

// Four columns; those past the end are 0.
template <quant::Type kType>
__device__ __forceinline__ float4 staged_four(const std::byte* row, int column, int cols) {
    const auto value = [&](int c) {
        if (c >= cols) return 0.0f;
        if (kType == quant::Type::f32) return reinterpret_cast<const float*>(row)[c];
        return bfloat_to_float(reinterpret_cast<const std::uint16_t*>(row)[c]);
    };
    return make_float4(value(column), value(column + 1), value(column + 2), value(column + 3));
}

// One row of a format without blocks; the warp has the chains of all of kValueWarps.
template <quant::Type kType, int kTile>
__device__ __forceinline__ void multiply_value_row(const RowJob& job, const InputRows& x) {
    constexpr int kStep = kWarp * kValueFour;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 1
    for (int first = 0; first < job.count; first += kTile) {
        float sums[kValueWarps][kTile] = {};
#pragma unroll 1
        for (int begin = lane * kValueFour; begin < job.cols; begin += kValueWarps * kStep) {
#pragma unroll
            for (int w = 0; w < kValueWarps; ++w) {
                const int c = begin + w * kStep;
                const float4 weight = staged_four<kType>(job.rows_at, c, job.cols);
#pragma unroll
                for (int t = 0; t < kTile; ++t) {
                    sums[w][t] =
                        add_value_four(weight, x.four(job.x_row(first + t), c), sums[w][t]);
                }
            }
        }
#pragma unroll
        for (int t = 0; t < kTile; ++t) {
            float sum = warp_sum(sums[0][t]);
#pragma unroll
            for (int w = 1; w < kValueWarps; ++w) sum += warp_sum(sums[w][t]);
            if (lane == 0) job.store(first + t, 0, sum);
        }
    }
}

template <int kTile>
__device__ __forceinline__ void multiply_job(const Part& part, const RowJob& job) {
    if (part.blocks) {
        multiply_blocks<kTile>(part.type, job);
    } else if (part.type == quant::Type::f32) {
        multiply_value_row<quant::Type::f32, kTile>(job, part.x);
    } else {
        multiply_value_row<quant::Type::bf16, kTile>(job, part.x);
    }
}

// Which matrix a warp works on, with which input rows.
struct Segment {
    const std::byte* weight = nullptr;  // null: none
    int expert = 0;
    int begin = 0;  // of the input rows
    int end = 0;

    __device__ void find(const Part& part, int number) {
        weight = part.weight;
        begin = 0;
        end = part.x_rows;
        if (part.expert == nullptr) return;
        // All at once; what lies beyond the used ones is memory too.
        const int used = *part.used;
        expert = part.expert[number];
        begin = part.first[number];
        end = part.first[number + 1];
        weight = number < used ? part.at[expert] : nullptr;
    }
};

// What of a launch's shared memory is whose.
struct BlockShare {
    int book_bytes;
    int stage_bytes;

    int all() const { return book_bytes + kWarps * (kStageAlign + stage_bytes); }
    // Stage `number` of the block.
    __device__ Stage stage(int number) const {
        std::byte* barriers = shared_bytes() + book_bytes;
        return {.to = barriers + kWarps * kStageAlign + number * stage_bytes,
                .barrier = reinterpret_cast<std::uint64_t*>(barriers + number * kStageAlign)};
    }
};

// Some rows of one matrix, which a warp works on.
struct Task {
    int part = 0;
    int row = 0;
    int rows = 0;  // 0: nothing to do
    Segment segment;

    __device__ void find(const Products& all, int number) {
        rows = 0;
        if (number >= all.tasks) return;
        while (part + 1 < all.parts && number >= all.part[part + 1].first_task) ++part;
        const Part& own = all.part[part];
        const int across = (own.rows + own.task_rows - 1) / own.task_rows;
        const int at = number - own.first_task;
        segment.find(own, at / across);
        row = at % across * own.task_rows;
        if (segment.weight != nullptr) rows = min(own.task_rows, own.rows - row);
    }
    __device__ void fetch(const Products& all, Stage& stage) const {
        if (rows == 0 || all.part[part].wide) return;
        stage.begin(at(all), rows * all.part[part].row_bytes);
    }
    __device__ const std::byte* at(const Products& all) const {
        return segment.weight + std::int64_t{row} * all.part[part].row_bytes;
    }
};

__device__ __forceinline__ RowJob job_of(const Part& part, const Task& task,
                                         const std::byte* rows_at) {
    const Segment& segment = task.segment;
    return {.rows_at = rows_at,
            .rows = task.rows,
            .row_bytes = part.row_bytes,
            .align = align_of(rows_at, part.row_bytes),
            .lanes = part.row_lanes,
            .cols = part.cols,
            .book = reinterpret_cast<const unsigned*>(shared_bytes()),
            .made = part.made,
            .made_bytes = operand_bytes(part.group, part.cols),
            .x_rows = part.x_row == nullptr ? nullptr : part.x_row + segment.begin,
            .first_x = segment.begin,
            .count = segment.end - segment.begin,
            .factor = part.factors == nullptr ? part.factor : part.factors[segment.expert],
            .out = part.out + segment.begin * part.out_stride + task.row,
            .out_stride = part.out_stride};
}

template <int kTile>
__device__ __forceinline__ void run_wide(const Part& part, const RowJob& job) {
    const auto ready = [] { follow_earlier_kernels(); };
    if (part.type == quant::Type::q8_0) {
        multiply_wide_rows<quant::Type::q8_0, kTile>(job, ready);
    } else {
        multiply_wide_rows<quant::Type::q4_0, kTile>(job, ready);
    }
}

// A warp a task.
template <int kTile>
__global__ void __launch_bounds__(kThreads, kTile == 1 ? 6 : 4)
    rows_kernel(const __grid_constant__ Products all, BlockShare share) {
    const auto warp = static_cast<int>(threadIdx.x) / kWarp;
    if (all.routed_now) wait_for_earlier_kernels();
    Task task;
    task.find(all, static_cast<int>(blockIdx.x) * kWarps + warp);
    Stage stage = share.stage(warp);
    stage.prepare();
    task.fetch(all, stage);
    auto* book = reinterpret_cast<unsigned*>(shared_bytes());
    if (share.book_bytes != 0) {
        copy_few_rows_book(share.book_bytes, book);
        __syncthreads();
    }
    if (task.rows > 0 && all.part[task.part].wide) {
        return run_wide<kTile>(all.part[task.part],
                               job_of(all.part[task.part], task, task.at(all)));
    }
    follow_earlier_kernels();
    if (task.rows == 0) return;
    stage.wait();
    const RowJob job = job_of(all.part[task.part], task, stage.to);
    // Most experts of a window have one of its rows.
    if (kTile > 1 && job.count == 1) {
        multiply_job<1>(all.part[task.part], job);
    } else {
        multiply_job<kTile>(all.part[task.part], job);
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
    follow_earlier_kernels();
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

// Gives the parts with rounded rows theirs, which those of the same x share; whether there are any.
bool make_rows_of(Queue& queue, Products& products) {
    RowsToMake wanted[kMakesMax];
    int count = 0;
    int of_part[kPartsMax];
    for (int i = 0; i < products.parts; ++i) {
        const Part& part = products.part[i];
        of_part[i] = -1;
        if (part.group == kPlain || part.made != nullptr) continue;
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
    return count > 0;
}

}  // namespace

bool has_rows(const Part& part) {
    const BlockShare share{codebook_bytes(part.type), stage_bytes(part, kWindowMost)};
    if (share.all() > kFewRowsBytesMost) return false;
    switch (part.type) {
#define STRATA_CASE(name) case quant::Type::name:
        STRATA_FEW_ROW_BLOCKS(STRATA_CASE)
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
    const bool dense = has_dense_rows(queue, products);
    const bool made = (!dense || dense_rows_need_made(products)) && make_rows_of(queue, products);
    // Formats without blocks first: theirs are the longest sums.
    std::stable_partition(products.part, products.part + products.parts,
                          [](const Part& part) { return !has_blocks(part.type); });
    if (dense) return launch_dense_rows(queue, products);
    int window = 1;
    for (int i = 0; i < products.parts; ++i) {
        window = std::max(window, products.part[i].members_most);
    }
    BlockShare share{0, 0};
    products.tasks = 0;
    products.routed_now = false;
    for (int i = 0; i < products.parts; ++i) {
        Part& part = products.part[i];
        part.blocks = has_blocks(part.type);
        part.wide = goes_wide(part);
        part.task_rows = task_rows(part, window);
        part.row_lanes = lanes_of_row(part.cols);
        part.first_task = products.tasks;
        products.tasks += (part.rows + part.task_rows - 1) / part.task_rows * part.segments;
        // Lists of experts are older than the kernel before where that one made rows.
        products.routed_now |= part.expert != nullptr && !made;
        share.book_bytes = std::max(share.book_bytes, codebook_bytes(part.type));
        share.stage_bytes = std::max(share.stage_bytes, stage_bytes(part, window));
    }
    const int blocks = (products.tasks + kWarps - 1) / kWarps;
    const Grid grid{.blocks = dim3(static_cast<unsigned>(blocks)),
                    .threads = kThreads,
                    .shared_bytes = static_cast<std::size_t>(share.all()),
                    .dependent = true};
    // Wider windows take their weights from shared memory again.
    launch(queue, grid,
           window == 1   ? rows_kernel<1>
           : window == 2 ? rows_kernel<2>
                         : rows_kernel<4>,
           products, share);
}

}  // namespace strata::cuda
