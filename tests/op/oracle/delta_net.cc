#include "tests/op/oracle/delta_net.h"

#include <cmath>

namespace strata::test {

DeltaNetLayer random_delta_net(Random& random, Types types, const op::DeltaShape& shape,
                               std::int64_t width) {
    DeltaNetLayer layer;
    layer.shape = shape;
    layer.epsilon = random_epsilon(random);
    layer.qkv = random_weight(random, types.next(), shape.channels(), width);
    layer.gate = random_weight(random, types.next(), shape.value_width(), width);
    layer.beta = random_weight(random, types.next(), shape.value_heads, width);
    layer.alpha = random_weight(random, types.next(), shape.value_heads, width);
    layer.conv = random.floats(std::int64_t{1} * shape.channels() * shape.kernel, -1, 1);
    layer.decay_rate = random.floats(shape.value_heads, -1, -0.01);
    layer.decay_bias = random.floats(shape.value_heads, -2, 1);
    layer.norm = random.floats(shape.value_dim, 0.5, 1.5);
    layer.out = random_weight(random, types.next(), width, shape.value_width());
    return layer;
}

DeltaNetState zero_delta_state(const DeltaNetLayer& layer) {
    return {std::vector<float>(static_cast<std::size_t>(layer.memory_size())),
            std::vector<float>(static_cast<std::size_t>(layer.history_size()))};
}

DeltaNetState random_delta_state(Random& random, const DeltaNetLayer& layer) {
    return {random.floats(layer.memory_size(), -1, 1), random.floats(layer.history_size(), -1, 1)};
}

namespace {

// x / sqrt(sum x^2 + 1e-6)
Row unit(Row x) {
    const double scale = 1 / std::sqrt(dot(x, x) + 1e-6);
    for (double& value : x) value *= scale;
    return x;
}

int key_head(const DeltaNetLayer& layer, int h) {
    const int key_heads = layer.shape.key_heads;
    if (layer.order == op::HeadOrder::tiled) return h % key_heads;
    return h / (layer.shape.value_heads / key_heads);
}

// One row of one head: advances `memory` [dk, dv] and returns o.
Row delta_step(Row& memory, double alpha, double beta, const Row& q, const Row& k, const Row& v) {
    const std::size_t dv = v.size();
    for (double& value : memory) value *= alpha;
    Row delta = v;
    for (std::size_t i = 0; i < k.size(); ++i) {
        for (std::size_t j = 0; j < dv; ++j) delta[j] -= memory[i * dv + j] * k[i];
    }
    for (double& value : delta) value *= beta;
    Row o(dv);
    for (std::size_t i = 0; i < k.size(); ++i) {
        for (std::size_t j = 0; j < dv; ++j) {
            memory[i * dv + j] += k[i] * delta[j];
            o[j] += memory[i * dv + j] * q[i];
        }
    }
    return o;
}

// Row t: reads c, beta, alpha of `result`, advances its memory, returns the heads' o.
Rows read_memory(const DeltaNetLayer& layer, DeltaNetResult& result, std::size_t t) {
    const op::DeltaShape& shape = layer.shape;
    const std::int64_t keys = std::int64_t{1} * shape.key_heads * shape.key_dim;
    const Row& c = result.convolved[t];
    Rows o;
    for (int h = 0; h < shape.value_heads; ++h) {
        const std::int64_t g = key_head(layer, h);
        Row q = unit(part(c, g * shape.key_dim, shape.key_dim));
        for (double& value : q) value /= std::sqrt(static_cast<double>(shape.key_dim));
        const Row k = unit(part(c, keys + g * shape.key_dim, shape.key_dim));
        const Row v = part(c, 2 * keys + std::int64_t{h} * shape.value_dim, shape.value_dim);
        o.push_back(delta_step(result.memory[h], result.decay[t][h], result.beta[t][h], q, k, v));
    }
    return o;
}

}  // namespace

DeltaNetResult delta_net_oracle(const DeltaNetLayer& layer, const Rows& x,
                                const DeltaNetState& from) {
    const op::DeltaShape& shape = layer.shape;
    DeltaNetResult result;
    result.memory = rows_of(from.memory, std::int64_t{1} * shape.key_dim * shape.value_dim);
    Rows u = rows_of(from.history, shape.channels());
    for (const Row& row : x) {
        result.projected.push_back(product(layer.qkv, row));
        u.push_back(result.projected.back());
    }
    result.convolved = causal_convolution(u, shape.kernel - 1, layer.conv, shape.kernel, 1);
    result.history.assign(u.end() - (shape.kernel - 1), u.end());
    for (std::size_t t = 0; t < x.size(); ++t) {
        result.convolved[t] = silu(result.convolved[t]);
        const Row b = product(layer.beta, x[t]);
        const Row a = product(layer.alpha, x[t]);
        Row beta;
        Row decay;
        for (int h = 0; h < shape.value_heads; ++h) {
            beta.push_back(sigmoid(b[h]));
            decay.push_back(std::exp(layer.decay_rate[h] * softplus(a[h] + layer.decay_bias[h])));
        }
        result.beta.push_back(beta);
        result.decay.push_back(decay);
        const Row z = product(layer.gate, x[t]);
        Row heads;
        for (const Row& o : read_memory(layer, result, t)) {
            append(heads, rms_norm(o, layer.norm, layer.epsilon));
        }
        for (std::size_t i = 0; i < heads.size(); ++i) heads[i] *= sigmoid(z[i]);
        result.y.push_back(product(layer.out, heads));
    }
    return result;
}

}  // namespace strata::test
