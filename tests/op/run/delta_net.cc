#include "tests/op/run/delta_net.h"

namespace strata::test {
namespace {

void set_weights(Rig& rig, const DeltaNetLayer& layer, op::DeltaNet& args) {
    args.qkv = rig.weight("qkv", layer.qkv);
    args.gate = rig.weight("gate", layer.gate);
    args.beta_weight = rig.weight("beta_weight", layer.beta);
    args.alpha_weight = rig.weight("alpha_weight", layer.alpha);
    args.conv = rig.input("conv", layer.conv);
    args.decay_rate = rig.input("decay_rate", layer.decay_rate);
    args.decay_bias = rig.input("decay_bias", layer.decay_bias);
    args.norm = rig.input("norm", layer.norm);
    args.out = rig.weight("out", layer.out);
    args.shape = layer.shape;
    args.order = layer.order;
    args.epsilon = layer.epsilon;
}

}  // namespace

void expect_same_output(const std::string& what, const DeltaNetState& got,
                        const DeltaNetState& want) {
    expect_same_bits(what + ", memory", got.memory, want.memory);
    expect_same_bits(what + ", history", got.history, want.history);
}

void expect_same_output(const std::string& what, const DeltaNetOutput& got,
                        const DeltaNetOutput& want) {
    expect_same_bits(what + ", y", got.y, want.y);
    expect_same_output(what, got.state, want.state);
    expect_same_bits(what + ", projected", got.trace.projected, want.trace.projected);
    expect_same_bits(what + ", convolved", got.trace.convolved, want.trace.convolved);
    expect_same_bits(what + ", beta", got.trace.beta, want.trace.beta);
    expect_same_bits(what + ", decay", got.trace.decay, want.trace.decay);
}

void expect_result(const std::string& label, const DeltaNetOutput& got, const DeltaNetResult& want,
                   const Tolerance& y_tolerance, bool trace) {
    const Tolerance projection = Tolerance::projection();
    expect_close(label + ", y", got.y, want.y, y_tolerance);
    expect_close(label + ", memory", got.state.memory, want.memory, Tolerance::recurrence());
    expect_close(label + ", history", got.state.history, want.history, projection);
    if (!trace) return;
    expect_close(label + ", u", got.trace.projected, want.projected, projection);
    expect_close(label + ", c", got.trace.convolved, want.convolved, projection);
    expect_close(label + ", beta", got.trace.beta, want.beta, projection);
    expect_close(label + ", alpha", got.trace.decay, want.decay, projection);
}

DeltaNetOutput run_delta_net(TestBackend& backend, const std::string& label,
                             const DeltaNetLayer& layer, const DeltaNetState& from,
                             const std::vector<float>& x, DeltaOptions options) {
    Rig rig(backend, "delta_net, " + label);
    op::DeltaNet args;
    set_weights(rig, layer, args);
    args.form = options.form;
    args.x = rig.input("x", x, layer.width());
    const std::int64_t rows = args.x.rows;
    if (options.in_place) {
        args.to = {rig.state("memory", from.memory), rig.state("history", from.history)};
        args.from = args.to;
    } else {
        // The contract gives `from` no const; the rig still checks that nothing writes to it.
        args.from = {const_cast<float*>(rig.input("from.memory", from.memory)),
                     const_cast<float*>(rig.input("from.history", from.history))};
        args.to = {rig.output<float>("to.memory", layer.memory_size(), 1).data,
                   rig.output<float>("to.history", layer.history_size(), 1).data};
    }
    if (options.trace) {
        args.trace.projected = rig.output<float>("projected", rows, layer.shape.channels());
        args.trace.convolved = rig.output<float>("convolved", rows, layer.shape.channels());
        args.trace.beta = rig.output<float>("beta", rows, layer.shape.value_heads);
        args.trace.decay = rig.output<float>("decay", rows, layer.shape.value_heads);
    }
    args.y = rig.output<float>("y", rows, layer.width());
    rig.ops().delta_net(args, rig.queue());
    rig.finish();
    DeltaNetOutput output;
    output.y = rig.read(args.y.data);
    output.state = {rig.read(args.to.memory), rig.read(args.to.history)};
    if (options.trace) {
        output.trace = {rig.read(args.trace.projected.data), rig.read(args.trace.convolved.data),
                        rig.read(args.trace.beta.data), rig.read(args.trace.decay.data)};
    }
    return output;
}

DeltaNetState run_delta_replay(TestBackend& backend, const std::string& label,
                               const DeltaNetLayer& layer, const DeltaNetState& from,
                               const DeltaTraceValues& trace, std::int64_t rows,
                               const DeltaNetState& before, const ReplayOptions& options) {
    Rig rig(backend, "delta_replay, " + label);
    const auto view = [&](const char* name, const std::vector<float>& values, std::int64_t cols) {
        const auto in = rig.input(name, values, cols);
        return MatrixView<float>{const_cast<float*>(in.data), in.rows, in.cols};
    };
    std::vector<op::ReplayedLayer> layers;
    for (int i = 0; i < options.layers; ++i) {
        const std::string of = std::to_string(i);
        op::ReplayedLayer& one = layers.emplace_back();
        one.trace.projected =
            view(("projected" + of).c_str(), trace.projected, layer.shape.channels());
        one.trace.convolved =
            view(("convolved" + of).c_str(), trace.convolved, layer.shape.channels());
        one.trace.beta = view(("beta" + of).c_str(), trace.beta, layer.shape.value_heads);
        one.trace.decay = view(("decay" + of).c_str(), trace.decay, layer.shape.value_heads);
        const DeltaNetState& held = options.in_place ? from : before;
        one.to = {rig.state(("to.memory" + of).c_str(), held.memory),
                  rig.state(("to.history" + of).c_str(), held.history)};
        one.from = one.to;
        if (options.in_place) continue;
        one.from = {const_cast<float*>(rig.input(("from.memory" + of).c_str(), from.memory)),
                    const_cast<float*>(rig.input(("from.history" + of).c_str(), from.history))};
    }
    op::KeptRows kept{rows};
    if (options.told) kept.told = rig.input("told", std::vector<std::int64_t>{*options.told});
    rig.ops().delta_replay({layers, kept, layer.shape, layer.order}, rig.queue());
    rig.finish();
    const auto state_of = [&](const op::ReplayedLayer& one) {
        return DeltaNetState{rig.read(one.to.memory), rig.read(one.to.history)};
    };
    const DeltaNetState last = state_of(layers.back());
    for (const op::ReplayedLayer& one : layers) {
        expect_same_output(label + ", of " + std::to_string(options.layers), state_of(one), last);
    }
    return last;
}

}  // namespace strata::test
