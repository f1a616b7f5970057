#include "backend/cpu/route.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/pointwise.h"
#include "backend/cpu/project.h"

namespace strata::cpu {
namespace {

// A strict order of logits in which NaN comes after every number.
bool before(float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); }

void route_all(const op::Experts& args, Queue& queue, const Routed& to) {
    const std::int64_t experts = args.experts.count;
    const MatrixView<float> logits = queue.matrix(args.x.rows, experts);
    project(queue, args.x,
            {{.weight = args.router, .out = logits, .exact = true},
             {.weight = args.shared_scale, .out = to.scale, .exact = true}});
    queue.split(args.x.rows, 8 * experts, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            choose_experts(logits.row(t), experts, args.active, args.renormalize, to.chosen.row(t),
                           to.share.row(t));
            to.scale.row(t)[0] = sigmoid(to.scale.row(t)[0]);
        }
    });
}

}  // namespace

// The softmax rises with its logit, so that the largest logits are the largest shares; comparing
// logits keeps apart what exp rounds together.
void choose_experts(const float* logits, std::int64_t experts, int k, bool renormalize,
                    std::int32_t* chosen, float* share) {
    int count = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
        if (count == k && !before(logits[e], logits[chosen[k - 1]])) continue;
        int at = count < k ? count++ : k - 1;
        for (; at > 0 && before(logits[e], logits[chosen[at - 1]]); --at) {
            chosen[at] = chosen[at - 1];
        }
        chosen[at] = static_cast<std::int32_t>(e);
    }
    const float largest = logits[chosen[0]];
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) {
        share[i] = std::exp(logits[chosen[i]] - largest);
        sum += share[i];
    }
    if (!renormalize) {
        sum = 0.0f;
        for (std::int64_t e = 0; e < experts; ++e) sum += std::exp(logits[e] - largest);
    }
    for (int i = 0; i < k; ++i) share[i] /= sum;
}

void group_rows(MatrixView<const std::int32_t> chosen, std::int64_t experts, std::int32_t* counts,
                Groups& groups) {
    std::fill_n(counts, experts + 1, 0);
    for (std::int64_t i = 0; i < chosen.size(); ++i) ++counts[chosen.data[i] + 1];
    groups.used = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
        if (counts[e + 1] > 0) {
            groups.expert[groups.used] = static_cast<std::int32_t>(e);
            groups.first[groups.used++] = counts[e];
        }
        counts[e + 1] += counts[e];
    }
    groups.first[groups.used] = static_cast<std::int32_t>(chosen.size());
    for (std::int64_t u = 0; u < groups.used; ++u) {
        std::fill(groups.net + groups.first[u], groups.net + groups.first[u + 1],
                  static_cast<std::int32_t>(u));
    }
    for (std::int64_t i = 0; i < chosen.size(); ++i) {
        const std::int32_t member = counts[chosen.data[i]]++;
        groups.row[member] = static_cast<std::int32_t>(i / chosen.cols);
        groups.place[i] = member;
    }
}

void route_rows(const op::Experts& args, Queue& queue, const Routed& to) {
    const std::int64_t rows = args.x.rows;
    const std::int64_t block = divided_rows(queue, rows, {&args.router, &args.shared_scale});
    if (block == 0 || queue.observer() != nullptr) return route_all(args, queue, to);
    queue.by_rows(rows, block, [&](Queue& one, std::int64_t begin, std::int64_t end) {
        op::Experts own = args;
        own.x = args.x.rows_from(begin, end - begin);
        route_all(own, one, to.rows_from(begin, end - begin));
    });
}

}  // namespace strata::cpu
