#include "tests/op/oracle/ngram.h"

#include <cmath>

namespace strata::test {

NgramMixLayer random_ngram_mix(Random& random, Types types, const NgramMixSizes& sizes) {
    NgramMixLayer layer;
    layer.streams = sizes.streams;
    layer.epsilon = random_epsilon(random);
    layer.width = sizes.width;
    layer.kernel = sizes.kernel;
    layer.dilation = sizes.dilation;
    const std::int64_t channels = layer.channels();
    layer.key = random_weight(random, types.next(), channels, sizes.embedding);
    layer.value = random_weight(random, types.next(), sizes.width, sizes.embedding);
    layer.norm_key = random.floats(channels, 0.5, 1.5);
    layer.norm_query = random.floats(channels, 0.5, 1.5);
    layer.norm_conv = random.floats(channels, 0.5, 1.5);
    layer.conv = random.floats(channels * sizes.kernel, -1, 1);
    return layer;
}

NgramMixResult ngram_mix_oracle(const NgramMixLayer& layer, const Rows& e, Rows residual,
                                const Rows& history, const Rows& block_out,
                                const Rows& block_inject) {
    const std::int64_t width = layer.width;
    if (!block_out.empty()) write_streams(residual, block_out, block_inject);
    Rows gated;
    Rows normed = history;
    for (std::size_t t = 0; t < e.size(); ++t) {
        const Row key = grouped_rms_norm(product(layer.key, e[t]), layer.norm_key, layer.epsilon,
                                         layer.streams);
        const Row value = product(layer.value, e[t]);
        const Row query =
            grouped_rms_norm(residual[t], layer.norm_query, layer.epsilon, layer.streams);
        Row y;
        for (int j = 0; j < layer.streams; ++j) {
            const double score = dot(part(key, j * width, width), part(query, j * width, width)) /
                                 std::sqrt(static_cast<double>(width));
            const double sign = score > 0 ? 1 : score < 0 ? -1 : 0;
            const double gate = sigmoid(sign * std::sqrt(std::max(std::abs(score), 1e-6)));
            for (const double v : value) y.push_back(gate * v);
        }
        gated.push_back(y);
        normed.push_back(grouped_rms_norm(y, layer.norm_conv, layer.epsilon, layer.streams));
    }
    const std::int64_t before = layer.history_rows();
    const Rows z = causal_convolution(normed, before, layer.conv, layer.kernel, layer.dilation);
    for (std::size_t t = 0; t < e.size(); ++t) {
        for (std::size_t i = 0; i < residual[t].size(); ++i) {
            residual[t][i] += gated[t][i] + silu(z[t][i]);
        }
    }
    return {.residual = std::move(residual),
            .normed = Rows(normed.begin() + before, normed.end()),
            .history = Rows(normed.end() - before, normed.end())};
}

}  // namespace strata::test
