#include "tests/op/run/streams.h"

namespace strata::test {

void expect_same_output(const std::string& what, const StreamReadOutput& got,
                        const StreamReadOutput& want) {
    expect_same_bits(what + ", residual", got.residual, want.residual);
    expect_same_bits(what + ", x", got.x, want.x);
    expect_same_bits(what + ", inject", got.inject, want.inject);
}

StreamReadOutput run_stream_read(TestBackend& backend, const std::string& label,
                                 const StreamReadLayer& layer, const StreamReadInput& input) {
    Rig rig(backend, "stream_read, " + label);
    op::StreamRead args;
    const std::int64_t channels = layer.streams * layer.width;
    args.residual =
        input.block_out.empty()
            ? MatrixView<float>{const_cast<float*>(rig.input("residual", input.residual)),
                                static_cast<std::int64_t>(input.residual.size()) / channels,
                                channels}
            : rig.state("residual", input.residual, channels);
    const std::int64_t rows = args.residual.rows;
    if (!layer.inject.empty() && !input.inject_in_place) {
        args.inject = rig.output<float>("inject", rows, layer.streams);
    }
    if (!input.block_out.empty()) {
        args.block_out = rig.input("block_out", input.block_out, layer.width);
        if (input.inject_in_place) {
            args.inject = rig.state("inject", input.block_inject, layer.streams);
            args.block_inject = args.inject;
        } else {
            args.block_inject = rig.input("block_inject", input.block_inject, layer.streams);
        }
    }
    args.norm = rig.input("norm", layer.norm);
    args.down = rig.weight("down", layer.down);
    args.up = rig.weight("up", layer.up);
    args.inject_weight = rig.weight("inject_weight", layer.inject);
    args.streams = layer.streams;
    args.epsilon = layer.epsilon;
    args.x = rig.output<float>("x", rows, layer.width);
    rig.ops().stream_read(args, rig.queue());
    rig.finish();
    StreamReadOutput output{rig.read(args.residual.data), rig.read(args.x.data), {}};
    if (!args.inject.empty()) output.inject = rig.read(args.inject.data);
    return output;
}

std::vector<float> run_mtp_fuse(TestBackend& backend, const std::string& label,
                                const MtpFuseLayer& layer, const std::vector<std::int32_t>& tokens,
                                const std::vector<float>& residual, bool in_place) {
    Rig rig(backend, "mtp_fuse, " + label);
    const std::int64_t channels = layer.streams * layer.width;
    const auto rows = static_cast<std::int64_t>(tokens.size());
    op::MtpFuse args;
    args.tokens = {rig.input("tokens", tokens), rows};
    args.table = rig.table("table", layer.table);
    args.fuse = rig.weight("fuse", layer.fuse);
    args.norm_embedding = rig.input("norm_embedding", layer.norm_embedding);
    args.norm_hidden = rig.input("norm_hidden", layer.norm_hidden);
    args.streams = layer.streams;
    args.epsilon = layer.epsilon;
    if (in_place) {
        args.out = rig.state("residual", residual, channels);
        args.residual = args.out;
    } else {
        args.out = rig.output<float>("out", rows, channels);
        args.residual = rig.input("residual", residual, channels);
    }
    rig.ops().mtp_fuse(args, rig.queue());
    rig.finish();
    return rig.read(args.out.data);
}

}  // namespace strata::test
