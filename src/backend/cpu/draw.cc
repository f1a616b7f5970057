// Bounded by the logarithms of the noise. This device's logits are the host's, which draws from
// them itself: the op is here as what others are held to.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/kernels.h"
#include "backend/cpu/queue.h"
#include "base/check.h"
#include "base/philox.h"

namespace strata::cpu {
namespace {

constexpr std::int64_t kLogarithmsCost = 64;

std::int32_t count_at(const op::DrawRule& rule, const op::Penalized& of, std::int64_t t) {
    std::int32_t count = of.count;
    for (std::int64_t i = 0; i < t; ++i) {
        count += (rule.joins[i] == of.token ? 1 : 0) - (rule.leaves[i] == of.token ? 1 : 0);
    }
    return count;
}

// One row: its penalized logits, and how often each is penalized for.
struct Row {
    double* logits;
    std::int32_t* counts;
    std::int32_t* order;  // where there are filters
};

void penalize(const op::Draw& args, std::int64_t t, const Row& row) {
    const std::int64_t width = args.logits.cols;
    std::fill_n(row.counts, width, 0);
    std::copy_n(args.logits.row(t), width, row.logits);
    for (std::int64_t i = 0; i < args.rule->penalized; ++i) {
        const op::Penalized& one = args.penalized[i];
        std::int64_t r = one.token;
        if (!args.token_of_row.empty()) {
            const std::int64_t* begin = args.token_of_row.data;
            const std::int64_t* found = std::lower_bound(begin, begin + width, one.token);
            r = found == begin + width || *found != one.token ? width : found - begin;
        }
        const std::int32_t count = count_at(*args.rule, one, t);
        if (r >= width || count <= 0) continue;
        row.counts[r] = count;
        row.logits[r] = op::penalized_logit(*args.rule, row.logits[r], count);
    }
}

// Keeps of `order`, the rows of a matrix by falling `scaled`, what top-k and top-p keep.
std::int64_t kept_of(const op::Draw& args, const double* scaled, const std::int32_t* order) {
    const op::DrawRule& rule = *args.rule;
    std::int64_t count = args.logits.cols;
    if ((args.filters & op::kFilterTopK) != 0 && rule.top_k > 0) {
        count = std::min(count, rule.top_k);
    }
    if ((args.filters & op::kFilterTopP) == 0 || rule.top_p >= 1) return count;
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += std::exp(scaled[order[i]]);
    double reached = 0;
    std::int64_t kept = 0;
    while (kept < count) {
        reached += std::exp(scaled[order[kept++]]) / sum;
        if (reached >= rule.top_p) break;
    }
    return kept;
}

void draw_row(const op::Draw& args, std::int64_t t, const Row& row) {
    const op::DrawRule& rule = *args.rule;
    const std::int64_t width = args.logits.cols;
    op::Drawn* drawn = args.drawn.row(t);
    std::fill_n(drawn, args.drawn.cols, op::Drawn{});
    penalize(args, t, row);
    const auto token_at = [&](std::int64_t r) {
        return static_cast<std::int32_t>(args.token_of_row.empty() ? r : args.token_of_row[r]);
    };
    const auto drawn_at = [&](std::int64_t r, double score) {
        return op::Drawn{token_at(r), row.counts[r], args.logits.row(t)[r],
                         static_cast<float>(score), 1};
    };
    const std::int64_t largest = std::max_element(row.logits, row.logits + width) - row.logits;
    const auto is_nan = [](double logit) { return std::isnan(logit); };
    if (std::any_of(row.logits, row.logits + width, is_nan)) return;
    if (!std::isfinite(row.logits[largest])) return;
    drawn[0] = drawn_at(largest, 0);
    if (rule.temperature == 0) return;
    const double from = row.logits[largest];
    for (std::int64_t r = 0; r < width; ++r) {
        row.logits[r] = (row.logits[r] - from) / rule.temperature;
        row.order[r] = static_cast<std::int32_t>(r);
    }
    std::int64_t kept = width;
    if (args.filters != 0) {
        std::stable_sort(row.order, row.order + width, [&](std::int32_t a, std::int32_t b) {
            return row.logits[a] > row.logits[b];
        });
        kept = kept_of(args, row.logits, row.order);
        std::sort(row.order, row.order + kept);
    }
    const std::int64_t most = args.drawn.cols - 1;
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < kept; ++i) {
        const std::int64_t r = row.order[i];
        double score = row.logits[r];
        if (!(score >= rule.lowest)) continue;
        score += gumbel(rule.seed, static_cast<std::uint64_t>(rule.position + t),
                        static_cast<std::uint32_t>(token_at(r)));
        const op::Drawn one = drawn_at(r, score);
        std::int64_t at = count < most ? count++ : most;
        for (; at > 0 && one.score > drawn[at].score; --at) {
            if (at < most) drawn[at + 1] = drawn[at];
        }
        if (at < most) drawn[at + 1] = one;
    }
}

}  // namespace

void draw(const op::Draw& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    const std::int64_t rows = args.logits.rows;
    const std::int64_t width = args.logits.cols;
    STRATA_CHECK(width >= 1 && rows <= op::kDrawRowsMax && args.drawn.rows == rows);
    STRATA_CHECK(args.drawn.cols >= 1 && args.drawn.cols <= 1 + op::kDrawnMax);
    STRATA_CHECK(args.token_of_row.empty() || args.token_of_row.size == width);
    STRATA_CHECK(args.rule->penalized <= args.penalized.size);
    double* logits = own.take<double>(rows * width);
    auto* counts = own.take<std::int32_t>(rows * width);
    auto* order = own.take<std::int32_t>(rows * width);
    own.split(rows, width * kLogarithmsCost, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            draw_row(args, t, {logits + t * width, counts + t * width, order + t * width});
        }
    });
}

}  // namespace strata::cpu
