// Bounded by reading the five weights at few rows (the memories of the heads come next), by
// multiply-adds in a prompt.
#include <algorithm>
#include <cmath>

#include "backend/cpu/delta.h"
#include "backend/cpu/history.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/project.h"
#include "backend/cpu/queue.h"
#include "base/check.h"

namespace strata::cpu {
namespace {

// Channels that one thread convolves at a time.
constexpr std::int64_t kChannelTile = 512;

void check(const op::DeltaShape& shape) {
    STRATA_CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0);
    STRATA_CHECK(shape.key_dim > 0 && shape.value_dim > 0);
    STRATA_CHECK(shape.kernel > 0);
}

bool fits(MatrixView<const float> view, std::int64_t rows, std::int64_t cols) {
    return view.empty() || (view.rows == rows && view.cols == cols);
}

void check(const op::DeltaNet& args) {
    const op::DeltaShape& shape = args.shape;
    const std::int64_t width = args.x.cols;
    const std::int64_t rows = args.x.rows;
    check(shape);
    STRATA_CHECK(has_shape(args.qkv, shape.channels(), width));
    STRATA_CHECK(has_shape(args.gate, shape.value_width(), width));
    STRATA_CHECK(has_shape(args.beta_weight, shape.value_heads, width));
    STRATA_CHECK(has_shape(args.alpha_weight, shape.value_heads, width));
    STRATA_CHECK(has_shape(args.out, args.y.cols, shape.value_width()));
    STRATA_CHECK(args.y.rows == rows && args.y.cols == width);
    STRATA_CHECK(fits(args.trace.projected, rows, shape.channels()));
    STRATA_CHECK(fits(args.trace.convolved, rows, shape.channels()));
    STRATA_CHECK(fits(args.trace.beta, rows, shape.value_heads));
    STRATA_CHECK(fits(args.trace.decay, rows, shape.value_heads));
}

// The caller's view where it wants the values, else scratch.
MatrixView<float> view_or_scratch(Queue& queue, MatrixView<float> wanted, std::int64_t rows,
                                  std::int64_t cols) {
    return wanted.empty() ? queue.matrix(rows, cols) : wanted;
}

// The rows of u that make row t of c, oldest first.
void list_taps(const op::DeltaNet& args, MatrixView<const float> u, std::int64_t t,
               const float** rows) {
    const int taps = args.shape.kernel;
    for (int j = 0; j < taps; ++j) {
        const std::int64_t row = t - (taps - 1) + j;
        rows[j] = row >= 0 ? u.row(row) : args.from.history + (t + j) * u.cols;
    }
}

// Turns the projections b and a of one row into beta and the log decay; decay = exp(log decay).
void activate_gates(const op::DeltaNet& args, float* beta, float* log_decay, float* decay) {
    const int heads = args.shape.value_heads;
    for (int h = 0; h < heads; ++h) {
        beta[h] = sigmoid(beta[h]);
        log_decay[h] = args.decay_rate[h] * softplus(log_decay[h] + args.decay_bias[h]);
        decay[h] = exponential(log_decay[h]);
    }
}

// What the projections give, and what is made of it.
struct Projected {
    MatrixView<float> u;
    MatrixView<float> c;
    MatrixView<float> units;
    MatrixView<float> beta;
    MatrixView<float> decay;
    MatrixView<float> log_decay;
    MatrixView<float> z;
};

// Everything between the projections and the recurrence. Units are made of whole rows of c, so that
// threads that share a row meet in between.
void prepare(const op::DeltaNet& args, Queue& queue, const DeltaInputs& in, const Projected& rows) {
    const std::int64_t tiles = (rows.u.cols + kChannelTile - 1) / kChannelTile;
    const int taps = args.shape.kernel;
    const auto** lists = queue.take<const float*>(std::int64_t{queue.threads()} * taps);
    queue.split(rows.u.rows * tiles, kChannelTile * (kExpCost + taps),
                [&](std::int64_t begin, std::int64_t end, int thread) {
                    const float** list = lists + std::int64_t{thread} * taps;
                    for (std::int64_t i = begin; i < end; ++i) {
                        const std::int64_t first = i % tiles * kChannelTile;
                        list_taps(args, rows.u, i / tiles, list);
                        convolve_silu(queue.instructions(), list, taps, args.conv, first,
                                      std::min(first + kChannelTile, rows.u.cols),
                                      rows.c.row(i / tiles));
                    }
                });
    const std::int64_t gates = 4 * kExpCost * args.shape.value_heads;
    queue.split(
        rows.u.rows, in.unit_width() + gates, [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t t = begin; t < end; ++t) {
                make_units(in, t, rows.units.row(t));
                activate_gates(args, rows.beta.row(t), rows.log_decay.row(t), rows.decay.row(t));
            }
        });
}

// The recurrence of each head, then o_h / sqrt(mean(o_h^2) + eps) * norm * sigmoid(z_h) in place of
// its o.
void run_heads(const op::DeltaNet& args, Queue& queue, const DeltaInputs& in,
               MatrixView<const float> z, MatrixView<float> out) {
    const op::DeltaShape& shape = args.shape;
    const std::int64_t dv = shape.value_dim;
    const std::int64_t size = shape.key_dim * dv;
    const bool chunked = args.form == op::DeltaForm::chunked;
    const std::int64_t each = chunked ? chunked_scratch(shape) : 0;
    const MatrixView<float> scratch = queue.matrix(queue.threads(), (each + 15) / 16 * 16);
    const auto run_head = [&](int h, int thread) {
        const DeltaHead head{.h = h,
                             .rows = out.rows,
                             .from = args.from.memory + h * size,
                             .to = args.to.memory + h * size,
                             .out = out};
        if (chunked) {
            run_chunked(in, head, scratch.row(thread));
        } else {
            run_recurrent(queue.instructions(), in, head);
        }
        for (std::int64_t t = 0; t < out.rows; ++t) {
            float* o = out.row(t) + h * dv;
            rms_norm(queue.instructions(), o, args.norm, dv, args.epsilon, o);
            gate_row(queue.instructions(), o, z.row(t) + h * dv, dv, 1.0f);
        }
    };
    queue.split(shape.value_heads, (4 * size + dv * kExpCost) * out.rows,
                [&](std::int64_t begin, std::int64_t end, int thread) {
                    for (auto h = static_cast<int>(begin); h < end; ++h) run_head(h, thread);
                });
}

void replay(Queue& own, const op::DeltaReplay& args, const op::ReplayedLayer& layer,
            std::int64_t rows) {
    const op::DeltaShape& shape = args.shape;
    const op::DeltaTrace& trace = layer.trace;
    const std::int64_t size = std::int64_t{shape.key_dim} * shape.value_dim;
    DeltaInputs in{.convolved = trace.convolved,
                   .beta = trace.beta,
                   .decay = trace.decay,
                   .shape = shape,
                   .order = args.order};
    const MatrixView<float> units = own.matrix(rows, in.unit_width());
    for (std::int64_t t = 0; t < rows; ++t) make_units(in, t, units.row(t));
    in.units = units;
    own.split(shape.value_heads, 3 * size * rows, [&](std::int64_t begin, std::int64_t end, int) {
        for (auto h = static_cast<int>(begin); h < end; ++h) {
            run_recurrent(own.instructions(), in,
                          {.h = h,
                           .rows = rows,
                           .from = layer.from.memory + h * size,
                           .to = layer.to.memory + h * size,
                           .out = {}});
        }
    });
    advance_history(layer.from.history, {layer.to.history, shape.kernel - 1, shape.channels()},
                    trace.projected, rows);
}

}  // namespace

void delta_net(const op::DeltaNet& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const op::DeltaShape& shape = args.shape;
    const std::int64_t rows = args.x.rows;
    Projected made;
    made.u = view_or_scratch(own, args.trace.projected, rows, shape.channels());
    made.c = view_or_scratch(own, args.trace.convolved, rows, shape.channels());
    made.beta = view_or_scratch(own, args.trace.beta, rows, shape.value_heads);
    made.decay = view_or_scratch(own, args.trace.decay, rows, shape.value_heads);
    made.log_decay = own.matrix(rows, shape.value_heads);
    made.z = own.matrix(rows, shape.value_width());
    const MatrixView<float> o = own.matrix(rows, shape.value_width());
    DeltaInputs in{.convolved = made.c,
                   .beta = made.beta,
                   .decay = made.decay,
                   .log_decay = made.log_decay,
                   .shape = shape,
                   .order = args.order};
    made.units = own.matrix(rows, in.unit_width());
    in.units = made.units;

    project(own, args.x,
            {{args.qkv, made.u},
             {args.gate, made.z},
             {args.beta_weight, made.beta},
             {args.alpha_weight, made.log_decay}});
    prepare(args, own, in, made);
    run_heads(args, own, in, made.z, o);
    project(own, o, {{args.out, args.y}});
    advance_history(args.from.history, {args.to.history, shape.kernel - 1, shape.channels()},
                    made.u, rows);
}

void delta_replay(const op::DeltaReplay& args, device::Queue& queue) {
    check(args.shape);
    for (const op::ReplayedLayer& layer : args.layers) {
        STRATA_CHECK(layer.trace.fits(args.shape));
        STRATA_CHECK(args.kept.fit(layer.trace.projected.rows));
        const std::int64_t rows = args.kept.wanted();
        if (rows > 0) replay(begin_op(queue), args, layer, rows);
    }
}

}  // namespace strata::cpu
