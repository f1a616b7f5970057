// Bounded by reading key; once a step, in one layer.
#include <algorithm>
#include <cmath>

#include "backend/cpu/history.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/project.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/streams.h"
#include "base/check.h"

namespace strata::cpu {
namespace {

void check(const op::NgramMix& args) {
    const std::int64_t all = args.residual.cols;
    const std::int64_t rows = args.residual.rows;
    STRATA_CHECK(args.e.rows == rows && args.streams > 0 && all % args.streams == 0);
    STRATA_CHECK(has_shape(args.key, all, args.e.cols));
    STRATA_CHECK(has_shape(args.value, all / args.streams, args.e.cols));
    STRATA_CHECK(args.kernel >= 1 && args.dilation >= 1);
    STRATA_CHECK(args.trace.empty() || (args.trace.rows == rows && args.trace.cols == all));
    STRATA_CHECK(
        block_fits(args.block_out, args.block_inject, rows, args.streams, all / args.streams));
}

// s = K . Q / sqrt(D); sigmoid(sign(s) sqrt(max(|s|, 1e-6)))
float gate(float product, std::int64_t width) {
    constexpr float kSmallest = 1e-6f;
    const float score = product / std::sqrt(static_cast<float>(width));
    if (score == 0.0f) return 0.5f;
    const float root = std::sqrt(std::max(std::fabs(score), kSmallest));
    return sigmoid(score < 0.0f ? -root : root);
}

// Turns the row of `keys` into Y and writes X, stream by stream; `query` is scratch of D values.
void gate_stream(Instructions instructions, const op::NgramMix& args, std::int64_t t,
                 std::int64_t s, const float* value, float* query, float* key, float* normed) {
    const std::int64_t width = args.value.rows;
    const std::int64_t at = s * width;
    float* stream = args.residual.row(t) + at;
    if (!args.block_out.empty()) {
        inject_stream(instructions, stream, args.block_inject.row(t)[s], args.block_out.row(t),
                      width);
    }
    rms_norm(instructions, stream, args.norm_query + at, width, args.epsilon, query);
    rms_norm(instructions, key, args.norm_key + at, width, args.epsilon, key);
    const float share = gate(dot(key, query, width), width);
    for (std::int64_t i = 0; i < width; ++i) key[i] = share * value[i];
    rms_norm(instructions, key, args.norm_conv + at, width, args.epsilon, normed);
}

// residual[t] += Y[t] + silu(conv over X), channels begin .. end-1. `taps` and `z` are
// scratch of K pointers and end - begin values.
void convolve(Instructions instructions, const op::NgramMix& args, MatrixView<const float> gated,
              MatrixView<const float> normed, std::int64_t t, std::int64_t begin, std::int64_t end,
              const float** taps, float* z) {
    const std::int64_t all = normed.cols;
    const std::int64_t kept = std::int64_t{args.kernel - 1} * args.dilation;
    for (int j = 0; j < args.kernel; ++j) {
        const std::int64_t row = t - std::int64_t{args.dilation} * (args.kernel - 1 - j);
        taps[j] = (row >= 0 ? normed.row(row) : args.history_from + (kept + row) * all) + begin;
    }
    const std::int64_t count = end - begin;
    convolve_silu(instructions, taps, args.kernel, args.conv + begin * args.kernel, 0, count, z);
    float* residual = args.residual.row(t) + begin;
    const float* y = gated.row(t) + begin;
    for (std::int64_t c = 0; c < count; ++c) residual[c] += y[c] + z[c];
}

}  // namespace

void ngram_mix(const op::NgramMix& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const std::int64_t rows = args.residual.rows;
    const std::int64_t all = args.residual.cols;
    const std::int64_t width = args.value.rows;
    const MatrixView<float> gated = own.matrix(rows, all);  // the keys, until Y replaces them
    const MatrixView<float> value = own.matrix(rows, width);
    const MatrixView<float> normed = args.trace.empty() ? own.matrix(rows, all) : args.trace;
    const MatrixView<float> query = own.matrix(own.threads(), width);
    const auto** taps = own.take<const float*>(std::int64_t{own.threads()} * args.kernel);

    project(own, args.e, {{args.key, gated}, {args.value, value}});
    own.split(
        rows * args.streams, 8 * width, [&](std::int64_t begin, std::int64_t end, int thread) {
            for (std::int64_t i = begin; i < end; ++i) {
                const std::int64_t t = i / args.streams;
                gate_stream(own.instructions(), args, t, i % args.streams, value.row(t),
                            query.row(thread), gated.data + i * width, normed.data + i * width);
            }
        });
    own.split(rows * args.streams, (kExpCost + args.kernel) * width,
              [&](std::int64_t begin, std::int64_t end, int thread) {
                  for (std::int64_t i = begin; i < end; ++i) {
                      const std::int64_t first = i % args.streams * width;
                      convolve(own.instructions(), args, gated, normed, i / args.streams, first,
                               first + width, taps + std::int64_t{thread} * args.kernel,
                               query.row(thread));
                  }
              });
    const std::int64_t kept = std::int64_t{args.kernel - 1} * args.dilation;
    advance_history(args.history_from, {args.history_to, kept, all}, normed, rows);
}

}  // namespace strata::cpu
