// What the kernel of all products works on. Host code fills it in; project.h is the plain way.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/operand.cuh"
#include "backend/cuda/queue.h"
#include "op/weight.h"

namespace strata::cuda {

inline constexpr int kProductThreads = 512;
inline constexpr int kPartsMax = 8;
inline constexpr int kFormsMax = 4;  // plain, and rounded in groups of 32, 64 and 256

// One matrix, or those of the experts of a list, which are alike.
struct Part {
    quant::Type type = quant::Type::f32;
    bool exact = false;  // x is not rounded
    int group = kPlain;  // columns of x that are rounded together
    int form = 0;        // the group's number
    int rows = 0;        // of a matrix
    int cols = 0;
    int row_bytes = 0;
    int units = 0;          // of a row
    int lanes = 0;          // of a product
    int together = 0;       // rows of a lane
    int tasks = 0;          // of a matrix
    std::int64_t cost = 0;  // of a task, in bytes
    const std::byte* weight = nullptr;
    float factor = 1;
    float* out = nullptr;  // [input rows or members, out_stride]
    std::int64_t out_stride = 0;
    // For the kernel of rows.h: its own input rows, those of them that are rounded as it reads
    // them, the most segments and input rows of one that there may be, where its tasks begin.
    InputRows x;
    const std::byte* made = nullptr;
    int x_rows = 0;
    int segments = 1;
    int members_most = 1;
    int first_task = 0;
    int task_rows = 0;    // weight rows that a warp takes at once
    int row_lanes = 0;    // lanes that share one
    bool blocks = false;  // a format with blocks
    bool wide = false;    // whose rows go to registers
    // For experts, all in device memory.
    const int* used = nullptr;             // how many
    const int* expert = nullptr;           // [used]
    const std::byte* const* at = nullptr;  // by expert
    const float* factors = nullptr;        // by expert; null: none
    const int* first = nullptr;            // [used + 1]: where each one's members begin
    const int* x_row = nullptr;            // the input row of each member

    __device__ int all_tasks() const { return used == nullptr ? tasks : *used * tasks; }
};

struct Products {
    Part part[kPartsMax];
    int parts = 0;
    InputRows x;
    int x_rows = 0;
    int book_bytes = 0;
    int tasks = 0;            // of rows.h
    bool routed_now = false;  // the kernel before may have written the lists of experts
    // The rows of x by form; null: each block makes them in shared memory.
    const std::byte* made[kFormsMax] = {};
};

// The columns that are rounded together for products with this type; kPlain: x is not rounded.
int group_of(quant::Type type);

// A part for matrices like `weight`, whose address and factor it takes too; for windows of
// `window` rows. The caller adds where its products go.
Part make_part(const op::Weight& weight, int window, bool exact = false);

// Input rows in the form of `group`, in memory of the queue.
const std::byte* make_rows(Queue& queue, const InputRows& x, int rows, int group);

// Runs the parts with x, whose rows are made before where that is too much work for every block.
void run_products(Queue& queue, Products& products);

// For windows of one row, and of more.
void launch_products_row(Queue& queue, const Products& products, std::size_t shared_bytes);
void launch_products_window(Queue& queue, const Products& products, std::size_t shared_bytes);

// Blocks of a launch that splits its work evenly.
unsigned product_blocks(const Queue& queue);

}  // namespace strata::cuda
