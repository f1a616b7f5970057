#include "tests/op/oracle/sparse_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace strata::test {
namespace {

// rope_p(rms_norm(x; gain)) of one head.
Row turn(const AttentionLayer& layer, Row x, std::int64_t position) {
    const int pairs = layer.shape.rotary_pairs;
    for (int i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(position) * layer.inverse_frequency[i];
        const double a = x[i];
        const double b = x[i + pairs];
        x[i] = a * std::cos(angle) - b * std::sin(angle);
        x[i + pairs] = b * std::cos(angle) + a * std::sin(angle);
    }
    return x;
}

// Each of the heads of x, `dim` wide, normed and turned.
Row norm_and_turn(const AttentionLayer& layer, const Row& x, std::int64_t dim,
                  const std::vector<float>& gain, std::int64_t position) {
    Row y;
    for (std::int64_t at = 0; at < static_cast<std::int64_t>(x.size()); at += dim) {
        append(y, turn(layer, rms_norm(part(x, at, dim), gain, layer.epsilon), position));
    }
    return y;
}

}  // namespace

AttentionLayer random_attention(Random& random, Types types, const op::AttentionShape& shape,
                                std::int64_t width) {
    const std::int64_t d = shape.head_dim;
    AttentionLayer layer;
    layer.shape = shape;
    layer.epsilon = random_epsilon(random);
    layer.query = random_weight(random, types.next(), shape.heads * 2 * d, width);
    layer.key = random_weight(random, types.next(), shape.kv_heads * d, width);
    layer.value = random_weight(random, types.next(), shape.kv_heads * d, width);
    layer.out = random_weight(random, types.next(), width, shape.heads * d);
    layer.index_query =
        random_weight(random, types.next(), shape.index_heads * shape.index_dim, width);
    layer.index_key = random_weight(random, types.next(), shape.index_dim, width);
    layer.query_norm = random.floats(d, 0.5, 1.5);
    layer.key_norm = random.floats(d, 0.5, 1.5);
    layer.index_query_norm = random.floats(shape.index_dim, 0.5, 1.5);
    layer.index_key_norm = random.floats(shape.index_dim, 0.5, 1.5);
    for (int i = 0; i < shape.rotary_pairs; ++i) {
        layer.inverse_frequency.push_back(std::pow(1e4, -1.0 * i / shape.rotary_pairs));
    }
    return layer;
}

AttentionRow attention_row(const AttentionLayer& layer, const Row& x, std::int64_t position) {
    const std::int64_t d = layer.shape.head_dim;
    AttentionRow row;
    const Row both = product(layer.query, x);
    for (int h = 0; h < layer.shape.heads; ++h) {
        append(row.query, part(both, h * 2 * d, d));
        append(row.gate, part(both, h * 2 * d + d, d));
    }
    row.query = norm_and_turn(layer, row.query, d, layer.query_norm, position);
    row.key = norm_and_turn(layer, product(layer.key, x), d, layer.key_norm, position);
    row.value = product(layer.value, x);
    row.index_query = norm_and_turn(layer, product(layer.index_query, x), layer.shape.index_dim,
                                    layer.index_query_norm, position);
    row.raw = product(layer.index_key, x);
    return row;
}

Row attention_block_key(const AttentionLayer& layer, const Rows& raw, std::int64_t b) {
    Row mean(raw.front().size());
    for (const Row& row : raw) {
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += row[i] / layer.shape.ratio;
    }
    return norm_and_turn(layer, mean, layer.shape.index_dim, layer.index_key_norm,
                         b * layer.shape.ratio);
}

Selection attention_selection(const AttentionLayer& layer, const Row& index_query,
                              const Rows& block_keys, std::int64_t position) {
    const std::int64_t ratio = layer.shape.ratio;
    const std::int64_t complete = (position + 1) / ratio;
    const std::int64_t kept = std::min<std::int64_t>(layer.shape.blocks_kept, complete);
    Row scores;
    for (std::int64_t b = 0; b < complete; ++b) {
        double score = 0;
        for (int j = 0; j < layer.shape.index_heads; ++j) {
            const Row query =
                part(index_query, std::int64_t{j} * layer.shape.index_dim, layer.shape.index_dim);
            score += std::max(0.0, dot(query, block_keys[b]));
        }
        scores.push_back(score);
    }
    std::vector<std::int64_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return scores[a] > scores[b]; });
    Selection selection;
    if (kept > 0 && kept < complete && scores[order[kept - 1]] != scores[order[kept]]) {
        selection.margin = 1 - scores[order[kept]] / scores[order[kept - 1]];
    }
    selection.blocks.assign(order.begin(), order.begin() + kept);
    std::sort(selection.blocks.begin(), selection.blocks.end());
    for (const std::int64_t b : selection.blocks) {
        for (std::int64_t t = b * ratio; t < (b + 1) * ratio; ++t) selection.rows.push_back(t);
    }
    for (std::int64_t t = complete * ratio; t <= position; ++t) selection.rows.push_back(t);
    return selection;
}

Row attention_read(const AttentionLayer& layer, const AttentionRow& row, const Rows& keys,
                   const Rows& values, const std::vector<std::int64_t>& selected) {
    const std::int64_t d = layer.shape.head_dim;
    const int group = layer.shape.heads / layer.shape.kv_heads;
    Row heads;
    for (int h = 0; h < layer.shape.heads; ++h) {
        const std::int64_t g = h / group;
        const Row query = part(row.query, h * d, d);
        Row weights;
        for (const std::int64_t t : selected) {
            weights.push_back(dot(query, part(keys[t], g * d, d)) /
                              std::sqrt(static_cast<double>(d)));
        }
        const double largest = *std::max_element(weights.begin(), weights.end());
        double sum = 0;
        for (double& weight : weights) sum += weight = std::exp(weight - largest);
        Row o(static_cast<std::size_t>(d));
        for (std::size_t n = 0; n < selected.size(); ++n) {
            for (std::int64_t i = 0; i < d; ++i) {
                o[i] += weights[n] / sum * values[selected[n]][g * d + i];
            }
        }
        append(heads, o);
    }
    for (std::size_t i = 0; i < heads.size(); ++i) heads[i] *= sigmoid(row.gate[i]);
    return product(layer.out, heads);
}

}  // namespace strata::test
