// Bounded by reading the matrices of the chosen experts. In the formats of rows.h five launches:
// logits, routing, rounding, gate and up, down with the sum; in those of experts_up.h four, as the
// routing's launch rounds x too.
#include <algorithm>

#include "backend/cuda/codebooks.cuh"
#include "backend/cuda/contract.h"
#include "backend/cuda/experts_down.h"
#include "backend/cuda/experts_down_two.h"
#include "backend/cuda/experts_up.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/project.h"
#include "backend/cuda/route.h"
#include "base/check.h"

namespace strata::cuda {
namespace {

// Values of hidden rows that each block rounds for itself, as kOwnValuesMax of products.
constexpr std::int64_t kOwnHiddenMax = 16384;

op::Weight expert_weight(quant::Type type, std::int64_t rows, std::int64_t cols) {
    const quant::TypeInfo& info = quant::info(type);
    return {.type = type,
            .rows = rows,
            .cols = cols,
            .row_bytes = cols / info.block * info.block_bytes};
}

Part expert_part(quant::Type type, std::int64_t rows, std::int64_t cols, int window,
                 const std::byte* const* at, const float* factors) {
    Part part = make_part(expert_weight(type, rows, cols), window);
    part.at = at;
    part.factors = factors;
    return part;
}

// Some rows of a call, routed together.
struct Pass {
    const op::Experts& args;
    std::int64_t first = 0;
    int rows = 0;
    MatrixView<const float> logits;  // [T, E]
    MatrixView<const float> scale;   // [T, 1]
    MatrixView<float> share;         // [T, k], of all rows
    MatrixView<std::int32_t> chosen;

    int members() const { return rows * args.active; }
    int segments() const {
        return static_cast<int>(std::min<std::int64_t>(members(), args.experts.count));
    }
};

// gate . x and up . x of every member, and of every row the shared ones.
struct Hidden {
    MatrixView<float> gate;  // [members, F]
    MatrixView<float> up;
    MatrixView<float> shared_gate;  // [T, FS]
    MatrixView<float> shared_up;

    static InputRows rows(const MatrixView<float>& gate, const MatrixView<float>& up) {
        return {.data = gate.data,
                .up = up.data,
                .stride = gate.cols,
                .cols = static_cast<int>(gate.cols)};
    }
};

// `segments`: the most different experts of a routing.
void add_part(Products& all, Part part, const MatrixView<float>& out, const Routing* routing,
              int segments = 1) {
    part.out = out.data;
    part.out_stride = out.cols;
    if (routing != nullptr) {
        part.used = routing->used;
        part.expert = routing->expert;
        part.first = routing->first;
        part.x_row = routing->x_row;
        part.segments = segments;
    }
    all.part[all.parts++] = part;
}

Hidden expand(Queue& queue, const Pass& pass, const Routing& routing) {
    const op::Experts& args = pass.args;
    const op::ExpertTable& table = args.experts;
    const std::int64_t width = args.x.cols;
    const Hidden hidden{queue.matrix(pass.members(), table.hidden),
                        queue.matrix(pass.members(), table.hidden),
                        queue.matrix(pass.rows, args.shared_gate.rows),
                        queue.matrix(pass.rows, args.shared_gate.rows)};
    Products all;
    all.x_rows = pass.rows;
    all.x = {.data = args.x.row(pass.first), .stride = width, .cols = static_cast<int>(width)};
    add_part(all,
             expert_part(table.gate_type, table.hidden, width, pass.rows, table.gate_at,
                         table.gate_factors),
             hidden.gate, &routing, pass.segments());
    add_part(
        all,
        expert_part(table.up_type, table.hidden, width, pass.rows, table.up_at, table.up_factors),
        hidden.up, &routing, pass.segments());
    add_part(all, make_part(args.shared_gate, pass.rows), hidden.shared_gate, nullptr);
    add_part(all, make_part(args.shared_up, pass.rows), hidden.shared_up, nullptr);
    run_products(queue, all);
    return hidden;
}

// Enough blocks for each one's products to leave room for what else is in its shared memory.
unsigned contraction_blocks(const Queue& queue, const Contraction& args) {
    constexpr std::int64_t kProductsMax = 6144;
    const std::int64_t rows_most =
        std::max<std::int64_t>(kProductsMax / (args.rows * (args.active + 1)), 1);
    const std::int64_t least = (args.y.cols + rows_most - 1) / rows_most;
    return static_cast<unsigned>(
        std::min(std::max<std::int64_t>(queue.multiprocessors(), least), args.y.cols));
}

Contraction contraction(const Pass& pass, const Routing& routing) {
    const op::Experts& args = pass.args;
    const op::ExpertTable& table = args.experts;
    Contraction all;
    all.routed = expert_part(table.down_type, args.x.cols, table.hidden, 1, table.down_at,
                             table.down_factors);
    all.shared = make_part(args.shared_down, 1);
    all.rows = pass.rows;
    all.active = args.active;
    all.chosen = pass.chosen.row(pass.first);
    all.own_expert = routing.own_expert;
    all.place = routing.place;
    all.share = pass.share.row(pass.first);
    all.scale = pass.scale.row(pass.first);
    all.y = args.y.rows_from(pass.first, pass.rows);
    all.book_bytes = std::max(codebook_bytes(all.routed.type), codebook_bytes(all.shared.type));
    return all;
}

void contract(Queue& queue, const Pass& pass, const Routing& routing, const Hidden& hidden) {
    const op::Experts& args = pass.args;
    Contraction all = contraction(pass, routing);
    all.hidden = Hidden::rows(hidden.gate, hidden.up);
    all.shared_hidden = Hidden::rows(hidden.shared_gate, hidden.shared_up);
    if (has_down_rows(all)) return launch_down_rows(queue, all);
    const unsigned blocks = contraction_blocks(queue, all);
    const std::int64_t most = (args.y.cols + blocks - 1) / blocks;
    std::int64_t bytes = (pass.rows * (args.active + 1) * most * 4 + 15) / 16 * 16;
    if (hidden.gate.size() + hidden.shared_gate.size() <= kOwnHiddenMax) {
        bytes += std::max(pass.members() * operand_bytes(all.routed.group, all.routed.cols),
                          pass.rows * operand_bytes(all.shared.group, all.shared.cols));
    } else {
        all.made = make_rows(queue, all.hidden, pass.members(), all.routed.group);
        all.shared_made = make_rows(queue, all.shared_hidden, pass.rows, all.shared.group);
    }
    launch_contraction(queue, all, blocks, static_cast<std::size_t>(all.book_bytes + bytes));
}

// All that follows the logits, of hidden rows that are rounded as they are made.
void run_rounded(Queue& queue, const Pass& pass, RouteArgs route_args) {
    const op::Experts& args = pass.args;
    const std::int64_t width = args.x.cols;
    const quant::Type types[kRoundsMax] = {args.experts.gate_type, args.shared_gate.type};
    for (int i = 0; i < kRoundsMax; ++i) {
        const int group = group_of(types[i]);
        route_args.round[i] = {group,
                               queue.take<std::byte>(pass.rows * operand_bytes(group, width))};
    }
    route_args.x = {
        .data = args.x.row(pass.first), .stride = width, .cols = static_cast<int>(width)};
    const Routing routing = route(queue, route_args);
    Contraction all = contraction(pass, routing);
    const bool two = has_down_two(all);
    const RoundedHidden hidden = launch_up_rows(
        queue, args, routing, pass.rows, route_args.round[0].to, route_args.round[1].to, two);
    all.made = hidden.routed;
    all.shared_made = hidden.shared;
    if (two) return launch_down_two(queue, all);
    if (has_down_rows(all)) return launch_down_rows(queue, all);
    const unsigned blocks = contraction_blocks(queue, all);
    const std::int64_t most = (args.y.cols + blocks - 1) / blocks;
    const std::int64_t bytes = (pass.rows * (args.active + 1) * most * 4 + 15) / 16 * 16;
    launch_contraction(queue, all, blocks, static_cast<std::size_t>(all.book_bytes + bytes));
}

void check(const op::Experts& args) {
    STRATA_CHECK(args.active >= 1 && args.active <= op::kExpertsActiveMax);
    STRATA_CHECK(args.active <= args.experts.count && args.experts.count <= op::kExpertsMax);
    STRATA_CHECK(args.router.rows == args.experts.count && args.router.cols == args.x.cols);
    STRATA_CHECK(args.y.rows == args.x.rows && args.y.cols == args.x.cols);
    STRATA_CHECK(args.shared_down.rows == args.y.cols &&
                 args.shared_down.cols == args.shared_gate.rows);
}

}  // namespace

void experts(const op::Experts& args, device::Queue& queue) {
    check(args);
    Queue& own = begin_op(queue);
    const std::int64_t rows = args.x.rows;
    const MatrixView<float> logits = own.matrix(rows, args.experts.count);
    const MatrixView<float> scale = own.matrix(rows, 1);
    const Product products[] = {{args.router, logits}, {args.shared_scale, scale}};
    project(own, args.x, products, Rounding::none);
    Pass pass{
        .args = args, .logits = logits, .scale = scale, .share = args.share, .chosen = args.chosen};
    if (pass.share.empty()) pass.share = own.matrix(rows, args.active);
    if (pass.chosen.empty()) {
        pass.chosen = {own.take<std::int32_t>(rows * args.active), rows, args.active};
    }
    const int most = route_rows(args.experts.count);
    const bool rounded = has_up_rows(own, args);
    for (pass.first = 0; pass.first < rows; pass.first += pass.rows) {
        pass.rows = static_cast<int>(std::min<std::int64_t>(rows - pass.first, most));
        const RouteArgs route_args{.logits = pass.logits.rows_from(pass.first, pass.rows),
                                   .active = args.active,
                                   .renormalize = args.renormalize,
                                   .chosen = pass.chosen.row(pass.first),
                                   .share = pass.share.row(pass.first)};
        if (rounded) {
            run_rounded(own, pass, route_args);
            continue;
        }
        const Routing routing = route(own, route_args);
        contract(own, pass, routing, expand(own, pass, routing));
    }
}

}  // namespace strata::cuda
