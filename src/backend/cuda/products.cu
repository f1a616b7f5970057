#include "backend/cuda/products.h"

#include <algorithm>
#include <bit>

#include "backend/cuda/codebooks.cuh"
#include "backend/cuda/dense_rows.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/row_products.cuh"
#include "backend/cuda/rows.h"
#include "base/check.h"
#include "quant/integer_form.h"

namespace strata::cuda {
namespace {

// Values of x that each block rounds for itself rather than wait for a launch that does.
constexpr std::int64_t kOwnValuesMax = 8192;
// Beyond its bytes, what a weight row costs, in bytes.
constexpr std::int64_t kRowCost = 64;

constexpr int kRoundThreads = 256;

__global__ void __launch_bounds__(kRoundThreads)
    make_rows_kernel(InputRows x, int rows, int group, std::byte* to) {
    follow_earlier_kernels();
    const int warp = static_cast<int>(blockIdx.x * kRoundThreads + threadIdx.x) / kWarp;
    make_operand(x, rows, group, warp, static_cast<int>(gridDim.x) * kRoundThreads / kWarp, to);
}

int form_of(int group) { return group == kPlain ? 0 : group == 32 ? 1 : group == 64 ? 2 : 3; }

// L: about five units a lane.
int lanes_of(int units) {
    const auto wanted = std::bit_ceil(static_cast<unsigned>((units + 4) / 5));
    return static_cast<int>(std::clamp(wanted, 8u, static_cast<unsigned>(kWarp)));
}

int together_of(quant::Type type, bool exact, int window) {
    if (exact) return 1;
    return rows_together(type, window == 1 ? 1 : 2);
}

}  // namespace

int group_of(quant::Type type) {
    const quant::IntegerForm* form = quant::info(type).integers;
    return form == nullptr ? kPlain : std::max(form->group, kUnit);
}

Part make_part(const op::Weight& weight, int window, bool exact) {
    const bool blocks = quant::info(weight.type).integers != nullptr;
    Part part;
    part.type = weight.type;
    part.exact = blocks && exact;
    part.group = part.exact ? kPlain : group_of(weight.type);
    part.form = form_of(part.group);
    part.rows = static_cast<int>(weight.rows);
    part.cols = static_cast<int>(weight.cols);
    part.row_bytes = static_cast<int>(weight.row_bytes);
    const int unit = blocks ? kUnit : kPiece;
    part.units = (part.cols + unit - 1) / unit;
    part.lanes = lanes_of(part.units);
    part.together = together_of(part.type, part.exact, window);
    const int rows = part.together * (kWarp / part.lanes);
    part.tasks = (part.rows + rows - 1) / rows;
    part.cost = rows * (weight.row_bytes + kRowCost);
    part.weight = weight.data;
    part.factor = weight.factor;
    return part;
}

const std::byte* make_rows(Queue& queue, const InputRows& x, int rows, int group) {
    auto* to = queue.take<std::byte>(rows * operand_bytes(group, x.cols));
    const std::int64_t warps = std::int64_t{rows} * ((x.cols + kTogether - 1) / kTogether);
    const auto blocks = static_cast<unsigned>(
        std::min<std::int64_t>((warps * kWarp + kRoundThreads - 1) / kRoundThreads, kBlocksMax));
    launch(queue, {.blocks = dim3(blocks), .threads = kRoundThreads, .dependent = true},
           make_rows_kernel, x, rows, group, to);
    return to;
}

void run_other_products(Queue& queue, Products& products) {
    std::int64_t own_bytes = 0;
    const bool own = std::int64_t{products.x_rows} * products.x.cols <= kOwnValuesMax;
    products.book_bytes = 0;
    for (int i = 0; i < products.parts; ++i) {
        const Part& part = products.part[i];
        STRATA_CHECK(part.cols == products.x.cols);
        products.book_bytes = std::max(products.book_bytes, codebook_bytes(part.type));
        if (products.made[part.form] != nullptr) continue;
        if (own) {
            own_bytes = std::max(own_bytes, operand_bytes(part.group, part.cols));
        } else {
            products.made[part.form] = make_rows(queue, products.x, products.x_rows, part.group);
        }
    }
    const auto bytes = static_cast<std::size_t>(products.book_bytes + products.x_rows * own_bytes);
    if (products.x_rows == 1) {
        launch_products_row(queue, products, bytes);
    } else {
        launch_products_window(queue, products, bytes);
    }
}

void run_products(Queue& queue, Products& products) {
    Products rows;
    rows.x = products.x;
    rows.x_rows = products.x_rows;
    Products others = products;
    others.parts = 0;
    for (int i = 0; i < products.parts; ++i) {
        Part& part = products.part[i];
        part.x = products.x;
        part.x_rows = products.x_rows;
        part.members_most = products.x_rows;
    }
    const bool dense = has_dense_rows(queue, products);
    for (int i = 0; i < products.parts; ++i) {
        const Part& part = products.part[i];
        Products& to = dense || has_rows(part) ? rows : others;
        if (part.made != nullptr) others.made[part.form] = part.made;
        to.part[to.parts++] = part;
    }
    if (rows.parts > 0) launch_rows(queue, rows);
    if (others.parts > 0) run_other_products(queue, others);
}

unsigned product_blocks(const Queue& queue) {
    return static_cast<unsigned>(queue.multiprocessors());
}

}  // namespace strata::cuda
