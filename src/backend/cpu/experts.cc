// Bounded by reading the chosen experts' matrices: rows are grouped by expert, so that each matrix
// is read and decoded once a call. Threads divide the rows of every matrix, not the experts, whose
// loads differ.
#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/project.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/route.h"
#include "base/check.h"

namespace strata::cpu {
namespace {

// One gated feed-forward net and the rows that go through it.
struct Net {
    op::Weight gate;
    op::Weight up;
    op::Weight down;
    Rows x;                   // its input rows
    float* hidden = nullptr;  // [x.count, F]
};

// A call, its routing done.
struct Call {
    const op::Experts& args;
    Groups groups;
    MatrixView<float> hidden;         // [T*k, F] in member order
    MatrixView<float> shared_hidden;  // [T, FS]
    MatrixView<float> shared_scale;   // [T, 1]
    MatrixView<const float> share;    // [T, k]

    std::int64_t members() const { return hidden.rows; }
    std::int64_t rows() const { return args.x.rows; }
};

op::Weight weight_at(const std::byte* data, quant::Type type, std::int64_t rows,
                     std::int64_t cols) {
    const quant::TypeInfo& info = quant::info(type);
    return {.data = data,
            .type = type,
            .rows = rows,
            .cols = cols,
            .row_bytes = cols / info.block * info.block_bytes};
}

// The i-th of the used experts; after the last of them, the shared one.
Net net_at(const Call& call, std::int64_t i) {
    const op::Experts& args = call.args;
    const std::int64_t width = args.x.cols;
    if (i == call.groups.used) {
        return {.gate = args.shared_gate,
                .up = args.shared_up,
                .down = args.shared_down,
                .x = {.data = args.x.data, .stride = width, .count = args.x.rows},
                .hidden = call.shared_hidden.data};
    }
    const op::ExpertTable& table = args.experts;
    const std::int32_t e = call.groups.expert[i];
    const std::int32_t first = call.groups.first[i];
    return {.gate = weight_at(table.gate_at[e], table.gate_type, table.hidden, width),
            .up = weight_at(table.up_at[e], table.up_type, table.hidden, width),
            .down = weight_at(table.down_at[e], table.down_type, width, table.hidden),
            .x = {.data = args.x.data,
                  .stride = width,
                  .count = call.groups.first[i + 1] - first,
                  .at = call.groups.row + first},
            .hidden = call.hidden.row(first)};
}

// hidden[., begin .. end-1] = silu(gate . x) * (up . x). `weights` holds kRowTile decoded rows,
// `product` 2 * kRowTile values an input row.
void expand(const Net& net, std::int64_t begin, std::int64_t end, float* weights, float* product) {
    const std::int64_t width = net.gate.cols;
    float* gate = product;
    float* up = product + kRowTile * net.x.count;
    for (std::int64_t f = begin; f < end; f += kRowTile) {
        const std::int64_t count = std::min(kRowTile, end - f);
        products(decode_rows(net.gate, f, count, weights), net.x, width, gate, 1, kRowTile);
        products(decode_rows(net.up, f, count, weights), net.x, width, up, 1, kRowTile);
        for (std::int64_t m = 0; m < net.x.count; ++m) {
            float* hidden = net.hidden + m * net.gate.rows + f;
            for (std::int64_t i = 0; i < count; ++i) {
                hidden[i] = silu(gate[m * kRowTile + i]) * up[m * kRowTile + i];
            }
        }
    }
}

// y[., first .. first+count-1]. `part` gets what every member, then every row's shared net, gives.
void contract(const Call& call, std::int64_t first, std::int64_t count, float* weights,
              float* part) {
    const op::Experts& args = call.args;
    for (std::int64_t i = 0; i <= call.groups.used; ++i) {
        const Net net = net_at(call, i);
        const Rows hidden{.data = net.hidden, .stride = net.down.cols, .count = net.x.count};
        const std::int64_t member = i == call.groups.used ? call.members() : call.groups.first[i];
        products(decode_rows(net.down, first, count, weights), hidden, net.down.cols,
                 part + member * kRowTile, 1, kRowTile);
    }
    const std::int64_t k = args.active;
    for (std::int64_t t = 0; t < call.rows(); ++t) {
        const float* shared = part + (call.members() + t) * kRowTile;
        for (std::int64_t i = 0; i < count; ++i) {
            float sum = 0.0f;
            for (std::int64_t s = 0; s < k; ++s) {
                sum += call.share.row(t)[s] * part[call.groups.place[t * k + s] * kRowTile + i];
            }
            args.y.row(t)[first + i] = sum + call.shared_scale.row(t)[0] * shared[i];
        }
    }
}

void check(const op::Experts& args) {
    const std::int64_t rows = args.x.rows;
    const std::int64_t width = args.x.cols;
    const std::int64_t experts = args.experts.count;
    STRATA_CHECK(args.active >= 1 && args.active <= op::kExpertsActiveMax);
    STRATA_CHECK(args.active <= experts && experts <= op::kExpertsMax);
    STRATA_CHECK(has_shape(args.router, experts, width));
    STRATA_CHECK(has_shape(args.shared_scale, 1, width));
    STRATA_CHECK(has_shape(args.shared_gate, args.shared_gate.rows, width));
    STRATA_CHECK(has_shape(args.shared_up, args.shared_gate.rows, width));
    STRATA_CHECK(has_shape(args.shared_down, width, args.shared_gate.rows));
    STRATA_CHECK(args.y.rows == rows && args.y.cols == width);
    STRATA_CHECK(args.chosen.empty() ||
                 (args.chosen.rows == rows && args.chosen.cols == args.active));
    STRATA_CHECK(args.share.empty() || (args.share.rows == rows && args.share.cols == args.active));
}

// Routes every row and lays out what the nets need.
Call route(const op::Experts& args, Queue& queue) {
    const std::int64_t rows = args.x.rows;
    const std::int64_t experts = args.experts.count;
    const int k = args.active;
    const std::int64_t members = rows * k;
    const MatrixView<float> logits = queue.matrix(rows, experts);
    const MatrixView<float> scale = queue.matrix(rows, 1);
    project(queue, args.x, {{args.router, logits}, {args.shared_scale, scale}});

    const MatrixView<std::int32_t> chosen =
        args.chosen.empty() ? MatrixView<std::int32_t>{queue.take<std::int32_t>(members), rows, k}
                            : args.chosen;
    const MatrixView<float> share = args.share.empty() ? queue.matrix(rows, k) : args.share;
    queue.split(rows, 2 * experts, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            choose_experts(logits.row(t), experts, k, args.renormalize, chosen.row(t),
                           share.row(t));
            scale.row(t)[0] = sigmoid(scale.row(t)[0]);
        }
    });

    const std::int64_t most = std::min(experts, members);
    Groups groups{.expert = queue.take<std::int32_t>(most),
                  .first = queue.take<std::int32_t>(most + 1),
                  .row = queue.take<std::int32_t>(members),
                  .place = queue.take<std::int32_t>(members)};
    group_rows(chosen, experts, queue.take<std::int32_t>(experts + 1), groups);
    return {.args = args,
            .groups = groups,
            .hidden = queue.matrix(members, args.experts.hidden),
            .shared_hidden = queue.matrix(rows, args.shared_gate.rows),
            .shared_scale = scale,
            .share = share};
}

}  // namespace

void experts(const op::Experts& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const Call call = route(args, own);
    const std::int64_t width = args.x.cols;
    const std::int64_t hidden = args.experts.hidden;
    const std::int64_t shared = args.shared_gate.rows;
    const std::int64_t all = call.members() + call.rows();
    const std::int64_t widest = std::max({width, hidden, shared});
    const MatrixView<float> weights = own.matrix(own.threads(), kRowTile * widest);
    const MatrixView<float> parts = own.matrix(own.threads(), 2 * kRowTile * all);

    own.split(hidden, 2 * width * all, [&](std::int64_t begin, std::int64_t end, int thread) {
        for (std::int64_t i = 0; i < call.groups.used; ++i) {
            expand(net_at(call, i), begin, end, weights.row(thread), parts.row(thread));
        }
        expand(net_at(call, call.groups.used), begin * shared / hidden, end * shared / hidden,
               weights.row(thread), parts.row(thread));
    });
    own.split(width, hidden * all, [&](std::int64_t begin, std::int64_t end, int thread) {
        for (std::int64_t d = begin; d < end; d += kRowTile) {
            contract(call, d, std::min(kRowTile, end - d), weights.row(thread), parts.row(thread));
        }
    });
}

}  // namespace strata::cpu
