// The kernel of all products of windows of rows: any number of matrices in one launch.
//
// Bounded by reading the weights. Blocks of 16 warps, one a multiprocessor, each with an equal
// share of the bytes; a warp's lanes take 32 / L times a few rows at once, in 16-byte loads.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/codebooks.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/row_products.cuh"

namespace strata::cuda {

inline constexpr int kProductWarps = kProductThreads / kWarp;

// The block's shared memory: a codebook, then its input rows where it makes them itself.
struct BlockMemory {
    unsigned* book;
    std::byte* x;
    int group = -1;  // of x; -1: none yet
    quant::Type book_type = quant::Type::i64;

    // All of the block call both.
    __device__ void take_book(quant::Type type) {
        if (type == book_type || codebook_bytes(type) == 0) return;
        book_type = type;
        const unsigned* from = codebook_of(type);
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < codebook_bytes(type) / 4;
             i += kProductThreads) {
            book[i] = from[i];
        }
        __syncthreads();
    }
    __device__ void take_x(const InputRows& from, int rows, int own_group) {
        if (own_group == group) return;
        group = own_group;
        __syncthreads();
        make_operand(from, rows, group, static_cast<int>(threadIdx.x) / kWarp, kProductWarps, x);
        __syncthreads();
    }
};

// Where the block's part of the work starts and ends among the tasks of `part`, which begin at
// `at` of `all`.
__device__ inline int share_of(std::int64_t all, std::int64_t at, std::int64_t cost, int tasks,
                               unsigned block) {
    const std::int64_t border = all * block / gridDim.x;
    const std::int64_t own = (border - at + cost - 1) / cost;
    return static_cast<int>(border <= at ? 0 : own < tasks ? own : tasks);
}

// One task: 32 / lanes times `together` rows of one matrix, with all input rows that want it.
template <int kMost>
__device__ void run_task(const Products& all, const Part& part, int task, const std::byte* x,
                         const unsigned* book) {
    const int segment = task / part.tasks;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int wanted =
        (task % part.tasks * (kWarp / part.lanes) + lane / part.lanes) * part.together;
    const int row = wanted < part.rows ? wanted : (part.rows - 1) / part.together * part.together;
    const int expert = part.expert == nullptr ? 0 : part.expert[segment];
    const std::byte* weight = part.expert == nullptr ? part.weight : part.at[expert];
    const int begin = part.first == nullptr ? 0 : part.first[segment];
    const int end = part.first == nullptr ? all.x_rows : part.first[segment + 1];
    RowTask own{
        .row = weight + std::int64_t{row} * part.row_bytes,
        .rows = part.rows - row,
        .row_bytes = part.row_bytes,
        .cols = part.cols,
        .first = lane % part.lanes,
        .last = part.units,
        .lanes = part.lanes,
        .align = align_of(weight, part.row_bytes),
        .x = x,
        .x_bytes = operand_bytes(part.group, part.cols),
        .x_rows = nullptr,
        .x_count = 0,
        .book = book,
        .factor = part.factors == nullptr ? part.factor : part.factors[expert],
        .out = nullptr,
        .out_stride = part.out_stride,
        .store = wanted < part.rows && lane % part.lanes == 0,
    };
    const int most = part.exact ? 1 : kMost;
    for (int m = begin; m < end; m += most) {
        own.x_count = end - m < most ? end - m : most;
        own.x_rows = part.first == nullptr ? nullptr : part.x_row + m;
        if (part.first == nullptr) own.x = x + m * own.x_bytes;
        own.out = part.out + m * part.out_stride + row;
        // Tiles between the two would be faster by little, and each takes minutes to compile.
        if (own.x_count == 1) {
            multiply_rows<1, kMost>(part.type, part.exact, own);
        } else {
            multiply_rows<kMost, kMost>(part.type, part.exact, own);
        }
    }
}

// The weights of the block's first tasks are on their way to the cache before the wait.
__device__ inline void fetch_ahead(const Products& all) {
    std::int64_t cost = 0;
    for (int i = 0; i < all.parts; ++i) {
        if (all.part[i].used != nullptr) return;
        cost += all.part[i].cost * all.part[i].tasks;
    }
    std::int64_t at = 0;
    for (int i = 0; i < all.parts; ++i) {
        const Part& part = all.part[i];
        const int task = share_of(cost, at, part.cost, part.tasks, blockIdx.x) +
                         static_cast<int>(threadIdx.x) / kWarp;
        const int end = share_of(cost, at, part.cost, part.tasks, blockIdx.x + 1);
        at += part.cost * part.tasks;
        if (task >= end) continue;
        const std::int64_t bytes =
            std::int64_t{kWarp / part.lanes * part.together} * part.row_bytes;
        const std::int64_t last = std::int64_t{part.rows} * part.row_bytes;
        const std::byte* first = part.weight + task * bytes;
        const std::int64_t there = last - task * bytes;
        for (std::int64_t own = threadIdx.x % kWarp * kLineBytes; own < bytes && own < there;
             own += kWarp * kLineBytes) {
            prefetch(first + own);
        }
    }
}

template <int kMost>
__global__ void __launch_bounds__(kProductThreads, 1)
    products_kernel(const __grid_constant__ Products all) {
    fetch_ahead(all);
    follow_earlier_kernels();
    BlockMemory memory{reinterpret_cast<unsigned*>(shared_bytes()),
                       shared_bytes() + all.book_bytes};
    std::int64_t cost = 0;
    for (int i = 0; i < all.parts; ++i) cost += all.part[i].cost * all.part[i].all_tasks();
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    std::int64_t at = 0;
    for (int i = 0; i < all.parts; ++i) {
        const Part& part = all.part[i];
        const int tasks = part.all_tasks();
        const int begin = share_of(cost, at, part.cost, tasks, blockIdx.x);
        const int end = share_of(cost, at, part.cost, tasks, blockIdx.x + 1);
        at += part.cost * tasks;
        if (begin >= end) continue;
        memory.take_book(part.type);
        const std::byte* x = all.made[part.form];
        if (x == nullptr) {
            memory.take_x(all.x, all.x_rows, part.group);
            x = memory.x;
        }
        for (int task = begin + warp; task < end; task += kProductWarps) {
            run_task<kMost>(all, part, task, x, memory.book);
        }
    }
}

}  // namespace strata::cuda
