#include "tests/op/oracle/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace strata::test {
namespace {

Row feed_forward(const TestWeight& gate, const TestWeight& up, const TestWeight& down,
                 const Row& x) {
    return product(down, multiply(silu(product(gate, x)), product(up, x)));
}

Row softmax(const Row& logits) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    Row p;
    for (const double logit : logits) p.push_back(std::exp(logit - largest));
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& value : p) value /= sum;
    return p;
}

void add_scaled(Row& to, double scale, const Row& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += scale * from[i];
}

}  // namespace

ExpertsLayer random_experts(Random& random, Types types, const ExpertsSizes& sizes) {
    ExpertsLayer layer;
    layer.active = sizes.active;
    layer.router = random_weight(random, types.next(), sizes.experts, sizes.width);
    const quant::Type gate = types.next();
    const quant::Type up = types.next();
    const quant::Type down = types.next();
    for (std::int64_t e = 0; e < sizes.experts; ++e) {
        layer.gate.push_back(random_weight(random, gate, sizes.hidden, sizes.width));
        layer.up.push_back(random_weight(random, up, sizes.hidden, sizes.width));
        layer.down.push_back(random_weight(random, down, sizes.width, sizes.hidden));
    }
    layer.shared_scale = random_weight(random, types.next(), 1, sizes.width);
    layer.shared_gate = random_weight(random, types.next(), sizes.shared_hidden, sizes.width);
    layer.shared_up = random_weight(random, types.next(), sizes.shared_hidden, sizes.width);
    layer.shared_down = random_weight(random, types.next(), sizes.width, sizes.shared_hidden);
    return layer;
}

ExpertsResult experts_oracle(const ExpertsLayer& layer, const Rows& x) {
    ExpertsResult result;
    for (const Row& row : x) {
        const Row p = softmax(exact_product(layer.router, row));
        std::vector<std::int32_t> order(p.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return p[a] > p[b]; });
        Row share;
        double sum = 0;
        for (int j = 0; j < layer.active; ++j) {
            share.push_back(p[order[j]]);
            sum += p[order[j]];
            if (j + 1 == static_cast<int>(p.size())) continue;
            const double next = p[order[j + 1]];
            result.margin = std::min(result.margin, (p[order[j]] - next) / p[order[j]]);
        }
        Row y(row.size());
        for (int j = 0; j < layer.active; ++j) {
            if (layer.renormalize) share[j] /= sum;
            const std::int32_t e = order[j];
            result.chosen.push_back(e);
            add_scaled(y, share[j], feed_forward(layer.gate[e], layer.up[e], layer.down[e], row));
        }
        add_scaled(y, sigmoid(exact_product(layer.shared_scale, row)[0]),
                   feed_forward(layer.shared_gate, layer.shared_up, layer.shared_down, row));
        result.y.push_back(y);
        result.share.push_back(share);
    }
    return result;
}

}  // namespace strata::test
