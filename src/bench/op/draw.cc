// op/pick.h and op/draw.h: what a device says of logits, which it reads from its memory.
#include <algorithm>

#include "bench/op/cases.h"

namespace strata::bench {
namespace {

MatrixView<float> logits_of(Bed& bed, const OpOptions& options, std::int64_t rows) {
    const std::int64_t vocabulary = options.smoke ? 100 : 248320;
    rows = std::min<std::int64_t>(rows, op::kDrawRowsMax);
    return {bed.floats(rows * vocabulary, -8, 8), rows, vocabulary};
}

OpCase pick(const OpOptions& options, std::int64_t rows) {
    const auto own = std::make_shared<Bed>(options, "pick");
    Bed& bed = *own;
    op::Pick args;
    args.logits = logits_of(bed, options, rows);
    const std::int64_t count = args.logits.rows;
    args.picked = {reinterpret_cast<op::Picked*>(bed.zeros(2 * count)), count};
    float* const best = bed.zeros(2 * count);
    args.best = {reinterpret_cast<op::Candidate*>(best), count, 1};
    return OpCase(
        own, [own, args] { own->ops().pick(args, own->queue()); }, {best, count, 2},
        [=] { return 4.0 * static_cast<double>(args.logits.size()); });
}

// With penalties on some hundred tokens where there are filters too.
OpCase draw(const OpOptions& options, std::int64_t rows, int filters) {
    const auto own = std::make_shared<Bed>(options, "draw");
    Bed& bed = *own;
    op::Draw args;
    args.logits = logits_of(bed, options, rows);
    const std::int64_t count = args.logits.rows;
    op::DrawRule rule{.temperature = 1, .presence_penalty = 0.5};
    if ((filters & op::kFilterTopK) != 0) rule.top_k = 200;
    if ((filters & op::kFilterTopP) != 0) rule.top_p = 0.95;
    std::vector<op::Penalized> penalized;
    for (int i = 0; i < 300 && filters != 0; ++i) {
        penalized.push_back({37 * i, 1});
    }
    rule.penalized = std::ssize(penalized);
    args.rule = bed.upload(std::vector{rule});
    args.penalized = {penalized.empty() ? nullptr : bed.upload(penalized), std::ssize(penalized)};
    args.filters = filters;
    constexpr std::int64_t kWords = sizeof(op::Drawn) / sizeof(float);
    float* const drawn = bed.zeros(count * (1 + op::kDrawnMax) * kWords);
    args.drawn = {reinterpret_cast<op::Drawn*>(drawn), count, 1 + op::kDrawnMax};
    return OpCase(
        own, [own, args] { own->ops().draw(args, own->queue()); },
        {drawn, count, (1 + op::kDrawnMax) * kWords},
        [=] { return 4.0 * static_cast<double>(args.logits.size()); });
}

OpFamily draw_family(const char* name, int filters) {
    return {name, [filters](const OpOptions& options, std::int64_t rows) {
                return draw(options, rows, filters);
            }};
}

}  // namespace

std::vector<OpFamily> draw_families() {
    return {{"pick", pick},
            draw_family("draw", 0),
            draw_family("draw_top_k", op::kFilterTopK),
            draw_family("draw_top_k_p", op::kFilterTopK | op::kFilterTopP)};
}

}  // namespace strata::bench
