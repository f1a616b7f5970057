#include "tests/op/run/ngram.h"

namespace strata::test {

void expect_same_output(const std::string& what, const NgramMixOutput& got,
                        const NgramMixOutput& want) {
    expect_same_bits(what + ", residual", got.residual, want.residual);
    expect_same_bits(what + ", history", got.history, want.history);
    expect_same_bits(what + ", trace", got.trace, want.trace);
}

NgramMixOutput run_ngram_mix(TestBackend& backend, const std::string& label,
                             const NgramMixLayer& layer, const NgramMixInput& input) {
    Rig rig(backend, "ngram_mix, " + label);
    const std::int64_t channels = layer.channels();
    op::NgramMix args;
    args.e = rig.input("e", input.e, layer.key.cols);
    args.residual = rig.state("residual", input.residual, channels);
    if (!input.block_out.empty()) {
        args.block_out = rig.input("block_out", input.block_out, layer.width);
        args.block_inject = rig.input("block_inject", input.block_inject, layer.streams);
    }
    args.key = rig.weight("key", layer.key);
    args.value = rig.weight("value", layer.value);
    args.norm_key = rig.input("norm_key", layer.norm_key);
    args.norm_query = rig.input("norm_query", layer.norm_query);
    args.norm_conv = rig.input("norm_conv", layer.norm_conv);
    args.conv = rig.input("conv", layer.conv);
    args.kernel = layer.kernel;
    args.dilation = layer.dilation;
    args.streams = layer.streams;
    args.epsilon = layer.epsilon;
    if (input.in_place) {
        args.history_to = rig.state("history", input.history);
        args.history_from = args.history_to;
    } else {
        args.history_from = rig.input("history_from", input.history);
        args.history_to = rig.output<float>("history_to", layer.history_rows(), channels).data;
    }
    if (input.trace) args.trace = rig.output<float>("trace", args.e.rows, channels);
    rig.ops().ngram_mix(args, rig.queue());
    rig.finish();
    NgramMixOutput output{rig.read(args.residual.data), rig.read(args.history_to), {}};
    if (input.trace) output.trace = rig.read(args.trace.data);
    return output;
}

}  // namespace strata::test
