// Bounded by reading the five weights at few rows (the memories of the heads come next), by
// multiply-adds in a prompt.
#include <algorithm>
#include <cmath>
#include <cstring>

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
constexpr std::int64_t kChannelTile = 256;

void check(const op::DeltaShape& shape) {
    STRATA_CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0);
    STRATA_CHECK(shape.key_dim > 0 && shape.value_dim > 0 && shape.kernel > 0);
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

void convolve(const op::DeltaNet& args, Queue& queue, MatrixView<const float> u,
              MatrixView<float> c) {
    const int taps = args.shape.kernel;
    const std::int64_t tiles = (u.cols + kChannelTile - 1) / kChannelTile;
    const auto convolve_tile = [&](std::int64_t t, std::int64_t first) {
        const std::int64_t end = std::min(first + kChannelTile, u.cols);
        for (std::int64_t ch = first; ch < end; ++ch) {
            float sum = 0.0f;
            for (int j = 0; j < taps; ++j) {
                const std::int64_t row = t - (taps - 1) + j;
                const float* from = row >= 0 ? u.row(row) : args.from.history + (t + j) * u.cols;
                sum += args.conv[ch * taps + j] * from[ch];
            }
            c.row(t)[ch] = silu(sum);
        }
    };
    queue.split(u.rows * tiles, kChannelTile * (kExpCost + taps),
                [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t i = begin; i < end; ++i) {
                        convolve_tile(i / tiles, i % tiles * kChannelTile);
                    }
                });
}

// Turns the projections b and a into beta and the log decay; decay = exp(log decay).
void activate_gates(const op::DeltaNet& args, MatrixView<float> beta, MatrixView<float> log_decay,
                    MatrixView<float> decay) {
    for (std::int64_t t = 0; t < beta.rows; ++t) {
        for (std::int64_t h = 0; h < beta.cols; ++h) {
            beta.row(t)[h] = sigmoid(beta.row(t)[h]);
            float& rate = log_decay.row(t)[h];
            rate = args.decay_rate[h] * softplus(rate + args.decay_bias[h]);
            decay.row(t)[h] = std::exp(rate);
        }
    }
}

void run_heads(const op::DeltaNet& args, Queue& queue, const DeltaInputs& in,
               MatrixView<float> out) {
    const op::DeltaShape& shape = args.shape;
    const std::int64_t size = std::int64_t{shape.key_dim} * shape.value_dim;
    const bool chunked = args.form == op::DeltaForm::chunked;
    const std::int64_t each = chunked ? chunked_scratch(shape) : recurrent_scratch(shape);
    const MatrixView<float> scratch = queue.matrix(queue.threads(), (each + 15) / 16 * 16);
    queue.split(shape.value_heads, 4 * size * out.rows,
                [&](std::int64_t begin, std::int64_t end, int thread) {
                    for (auto h = static_cast<int>(begin); h < end; ++h) {
                        float* memory = args.to.memory + h * size;
                        if (args.from.memory != args.to.memory) {
                            std::memcpy(memory, args.from.memory + h * size,
                                        static_cast<std::size_t>(size) * sizeof(float));
                        }
                        (chunked ? run_chunked : run_recurrent)(in, h, out.rows, memory, out,
                                                                scratch.row(thread));
                    }
                });
}

// o_h / sqrt(mean(o_h^2) + eps) * norm * sigmoid(z_h), in place of o.
void gate_heads(const op::DeltaNet& args, Queue& queue, MatrixView<const float> z,
                MatrixView<float> o) {
    const std::int64_t dv = args.shape.value_dim;
    queue.split(o.size() / dv, dv * kExpCost, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
            float* head = o.data + i * dv;
            rms_norm(head, args.norm, dv, args.epsilon, head);
            for (std::int64_t j = 0; j < dv; ++j) head[j] *= sigmoid(z.data[i * dv + j]);
        }
    });
}

}  // namespace

void delta_net(const op::DeltaNet& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const op::DeltaShape& shape = args.shape;
    const std::int64_t rows = args.x.rows;
    const auto u = view_or_scratch(own, args.trace.projected, rows, shape.channels());
    const auto c = view_or_scratch(own, args.trace.convolved, rows, shape.channels());
    const auto beta = view_or_scratch(own, args.trace.beta, rows, shape.value_heads);
    const auto decay = view_or_scratch(own, args.trace.decay, rows, shape.value_heads);
    const auto log_decay = own.matrix(rows, shape.value_heads);
    const auto z = own.matrix(rows, shape.value_width());
    const auto o = own.matrix(rows, shape.value_width());

    project(
        own, args.x,
        {{args.qkv, u}, {args.gate, z}, {args.beta_weight, beta}, {args.alpha_weight, log_decay}});
    convolve(args, own, u, c);
    activate_gates(args, beta, log_decay, decay);
    run_heads(args, own, {c, beta, decay, log_decay, shape, args.order}, o);
    gate_heads(args, own, z, o);
    project(own, o, {{args.out, args.y}});
    advance_history(args.from.history, {args.to.history, shape.kernel - 1, shape.channels()}, u,
                    rows);
}

void delta_replay(const op::DeltaReplay& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    const op::DeltaShape& shape = args.shape;
    const op::DeltaTrace& trace = args.trace;
    const std::int64_t window = trace.projected.rows;
    check(shape);
    STRATA_CHECK(args.rows >= 0 && args.rows <= window);
    STRATA_CHECK(trace.projected.cols == shape.channels());
    STRATA_CHECK(trace.convolved.rows == window && trace.convolved.cols == shape.channels());
    STRATA_CHECK(trace.beta.rows == window && trace.beta.cols == shape.value_heads);
    STRATA_CHECK(trace.decay.rows == window && trace.decay.cols == shape.value_heads);
    if (args.rows == 0) return;

    const std::int64_t size = std::int64_t{shape.key_dim} * shape.value_dim;
    const DeltaInputs in{trace.convolved, trace.beta, trace.decay, {}, shape, args.order};
    const MatrixView<float> scratch = own.matrix(own.threads(), recurrent_scratch(shape));
    own.split(shape.value_heads, 3 * size * args.rows,
              [&](std::int64_t begin, std::int64_t end, int thread) {
                  for (auto h = static_cast<int>(begin); h < end; ++h) {
                      run_recurrent(in, h, args.rows, args.state.memory + h * size, {},
                                    scratch.row(thread));
                  }
              });
    advance_history(args.state.history, {args.state.history, shape.kernel - 1, shape.channels()},
                    trace.projected, args.rows);
}

}  // namespace strata::cpu
