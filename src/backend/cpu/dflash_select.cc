// Bounded by reading the logits of every row once; the walk itself is small.
#include <algorithm>
#include <cmath>
#include <span>

#include "backend/cpu/draw_candidate.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/product.h"
#include "backend/cpu/project.h"
#include "backend/cpu/queue.h"
#include "base/check.h"
#include "base/scan.h"

namespace strata::cpu {
namespace {

void check(const op::DflashSelect& args) {
    const std::int64_t n = args.logits.rows;
    const std::int64_t k = args.candidates.cols;
    STRATA_CHECK(args.hidden.rows == n && args.candidates.rows == n && args.scores.rows == n);
    STRATA_CHECK(args.path.size == n && args.confidence.size == n && args.rows != nullptr);
    STRATA_CHECK(args.scores.cols == k && k >= 1 && k <= op::kDflashCandidatesMax);
    STRATA_CHECK(k <= args.logits.cols);
    STRATA_CHECK(args.token_of_row.empty() || args.token_of_row.size == args.logits.cols);
    STRATA_CHECK(args.rule == nullptr || n <= op::kDrawRowsMax);
    STRATA_CHECK(has_shape(args.projection, args.projection.rows, args.hidden.cols));
    STRATA_CHECK(has_shape(args.predecessor, args.predecessor.rows, args.projection.rows));
    STRATA_CHECK(has_shape(args.successor, args.predecessor.rows, args.projection.rows));
}

std::int32_t token_at(const op::DflashSelect& args, std::int64_t row) {
    return static_cast<std::int32_t>(args.token_of_row.empty() ? row : args.token_of_row[row]);
}

// The `k` largest of n numbers, largest first, equal ones by index; false where one of the n is
// not finite.
bool choose(std::span<const float> logits, std::int64_t k, std::int32_t* chosen) {
    if (!all_finite(logits)) return false;
    std::int64_t count = 0;
    for (std::size_t r = 0; r < logits.size(); ++r) {
        if (count == k) r = first_above(logits, r, logits[static_cast<std::size_t>(chosen[k - 1])]);
        if (r == logits.size()) break;
        const auto above = [&](std::int64_t at) {
            return logits[r] > logits[static_cast<std::size_t>(chosen[at])];
        };
        std::int64_t at = count < k ? count++ : k - 1;
        for (; at > 0 && above(at - 1); --at) chosen[at] = chosen[at - 1];
        chosen[at] = static_cast<std::int32_t>(r);
    }
    return true;
}

// Scores the chosen head rows after token `before` and picks one; false where a score is not
// finite.
bool step(const op::DflashSelect& args, std::int64_t i, std::int32_t before, const float* hidden,
          float* transition, float* successor, std::int32_t* chosen) {
    const std::int64_t rank = args.projection.rows;
    const std::int64_t k = args.candidates.cols;
    float* scores = args.scores.row(i);
    decode_row(args.predecessor, before, transition);
    for (std::int64_t m = 0; m < rank; ++m) transition[m] *= hidden[m];
    for (std::int64_t c = 0; c < k; ++c) {
        const float logit = args.logits.row(i)[chosen[c]];
        chosen[c] = token_at(args, chosen[c]);
        decode_row(args.successor, chosen[c], successor);
        scores[c] = logit + dot(transition, successor, rank);
        if (!std::isfinite(scores[c])) return false;
    }
    const std::int64_t best = std::max_element(scores, scores + k) - scores;
    const std::int64_t pick = args.rule == nullptr ? best : draw_candidate(args, i);
    float sum = 0.0f;
    for (std::int64_t c = 0; c < k; ++c) sum += std::exp(scores[c] - scores[best]);
    args.path[i] = chosen[pick];
    args.confidence[i] = std::exp(scores[pick] - scores[best]) / sum;
    return true;
}

void clear(const op::DflashSelect& args, std::int64_t from) {
    const std::int64_t k = args.candidates.cols;
    for (std::int64_t i = from; i < args.logits.rows; ++i) {
        std::fill_n(args.candidates.row(i), k, -1);
        std::fill_n(args.scores.row(i), k, 0.0f);
        args.path[i] = -1;
        args.confidence[i] = 0.0f;
    }
}

}  // namespace

void dflash_select(const op::DflashSelect& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    check(args);
    const std::int64_t n = args.logits.rows;
    const std::int64_t rank = args.projection.rows;
    const MatrixView<float> hidden = own.matrix(n, rank);
    project(own, args.hidden, {{args.projection, hidden}});
    bool* finite = own.take<bool>(n);
    own.split(n, args.logits.cols, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::span logits(args.logits.row(i), static_cast<std::size_t>(args.logits.cols));
            finite[i] = choose(logits, args.candidates.cols, args.candidates.row(i));
        }
    });
    float* transition = own.take<float>(rank);
    float* successor = own.take<float>(rank);
    std::int32_t before = args.anchor_at == nullptr ? args.anchor : *args.anchor_at;
    std::int64_t i = 0;
    for (; i < n && finite[i]; ++i) {
        if (!step(args, i, before, hidden.row(i), transition, successor, args.candidates.row(i))) {
            break;
        }
        before = args.path[i];
    }
    clear(args, i);
    *args.rows = static_cast<std::int32_t>(i);
}

}  // namespace strata::cpu
