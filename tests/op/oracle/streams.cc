#include "tests/op/oracle/streams.h"

namespace strata::test {

StreamReadLayer random_stream_read(Random& random, Types types, int streams, std::int64_t width,
                                   std::int64_t rank) {
    StreamReadLayer layer;
    layer.streams = streams;
    layer.epsilon = random_epsilon(random);
    layer.width = width;
    layer.norm = random.floats(streams * width, 0.5, 1.5);
    layer.down = random_weight(random, types.next(), rank, streams * width);
    layer.up = random_weight(random, types.next(), streams * width, rank);
    layer.inject = random_weight(random, types.next(), streams, streams * width);
    return layer;
}

StreamReadResult stream_read_oracle(const StreamReadLayer& layer, Rows residual,
                                    const Rows& block_out, const Rows& block_inject) {
    const int streams = layer.streams;
    if (!block_out.empty()) write_streams(residual, block_out, block_inject);
    StreamReadResult result;
    for (const Row& r : residual) {
        const Row normed = grouped_rms_norm(r, layer.norm, layer.epsilon, streams);
        Row low = product(layer.down, normed);
        for (double& value : low) value = silu(value / streams);
        const Row gate = product(layer.up, low);
        Row x(static_cast<std::size_t>(layer.width));
        for (std::size_t i = 0; i < normed.size(); ++i) {
            x[i % x.size()] += sigmoid(gate[i]) * normed[i] / streams;
        }
        result.x.push_back(x);
        if (layer.inject.empty()) continue;
        Row inject = product(layer.inject, normed);
        for (double& value : inject) value = 2 * sigmoid(value / streams);
        result.inject.push_back(inject);
    }
    result.residual = std::move(residual);
    return result;
}

MtpFuseLayer random_mtp_fuse(Random& random, Types types, int streams, std::int64_t width,
                             std::int64_t vocabulary) {
    MtpFuseLayer layer;
    layer.streams = streams;
    layer.epsilon = random_epsilon(random);
    layer.width = width;
    layer.table = random_weight(random, types.next(), vocabulary, width);
    layer.fuse = random_weight(random, types.next(), width, 2 * width);
    layer.norm_embedding = random.floats(width, 0.5, 1.5);
    layer.norm_hidden = random.floats(streams * width, 0.5, 1.5);
    return layer;
}

Rows mtp_fuse_oracle(const MtpFuseLayer& layer, const std::vector<std::int32_t>& tokens,
                     const Rows& residual) {
    const std::int64_t width = layer.width;
    Rows out;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
        const float* embedding = layer.table.row(tokens[t]);
        const Row normed =
            rms_norm(Row(embedding, embedding + width), layer.norm_embedding, layer.epsilon);
        const Row hidden = rms_norm(residual[t], layer.norm_hidden, layer.epsilon);
        Row streams;
        for (int s = 0; s < layer.streams; ++s) {
            Row first = normed;
            append(first, Row(static_cast<std::size_t>(width)));
            Row second(static_cast<std::size_t>(width));
            append(second, part(hidden, s * width, width));
            first = product(layer.fuse, first);
            second = product(layer.fuse, second);
            for (std::size_t i = 0; i < first.size(); ++i) first[i] += second[i];
            append(streams, first);
        }
        out.push_back(streams);
    }
    return out;
}

}  // namespace strata::test
