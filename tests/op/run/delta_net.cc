#include "tests/op/run/delta_net.h"

#include "base/check.h"

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

// Of a memory that lies `off` values after a place where four can be read at once.
std::vector<float> put_off(int off, const std::vector<float>& memory) {
    std::vector<float> values(static_cast<std::size_t>(off));
    append(values, memory);
    return values;
}

std::vector<float> read_off(Rig& rig, int off, const float* memory) {
    const std::vector<float> values = rig.read(memory - off);
    return {values.begin() + off, values.end()};
}

op::ReplayedLayer place(Rig& rig, const std::string& of, const DeltaNetLayer& layer,
                        const ReplayedValues& values, bool in_place) {
    // The contract gives what is read alone no const; the rig still checks that nothing writes it.
    const auto input = [&](const char* name, const std::vector<float>& all) {
        return const_cast<float*>(rig.input((name + of).c_str(), all));
    };
    const auto view = [&](const char* name, const std::vector<float>& all, std::int64_t cols) {
        return MatrixView<float>{input(name, all), std::ssize(all) / cols, cols};
    };
    const DeltaTraceValues& trace = values.trace;
    const op::DeltaShape& shape = layer.shape;
    op::ReplayedLayer one;
    one.trace = {view("projected", trace.projected, shape.channels()),
                 view("convolved", trace.convolved, shape.channels()),
                 view("beta", trace.beta, shape.value_heads),
                 view("decay", trace.decay, shape.value_heads)};
    const int off = values.memory_off;
    const DeltaNetState& held = in_place ? values.from : values.before;
    one.to = {rig.state(("to.memory" + of).c_str(), put_off(off, held.memory)) + off,
              rig.state(("to.history" + of).c_str(), held.history)};
    one.from = one.to;
    if (in_place) return one;
    one.from = {input("from.memory", put_off(off, values.from.memory)) + off,
                input("from.history", values.from.history)};
    return one;
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
    const int off = options.memory_off;
    STRATA_CHECK(off == 0 || options.in_place);
    if (options.in_place) {
        args.to = {rig.state("memory", put_off(off, from.memory)) + off,
                   rig.state("history", from.history)};
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
    output.state = {read_off(rig, off, args.to.memory), rig.read(args.to.history)};
    if (options.trace) {
        output.trace = {rig.read(args.trace.projected.data), rig.read(args.trace.convolved.data),
                        rig.read(args.trace.beta.data), rig.read(args.trace.decay.data)};
    }
    return output;
}

std::vector<DeltaNetState> run_delta_replay(TestBackend& backend, const std::string& label,
                                            const DeltaNetLayer& layer,
                                            const std::vector<ReplayedValues>& layers,
                                            std::int64_t rows, const ReplayOptions& options) {
    Rig rig(backend, "delta_replay, " + label);
    std::vector<op::ReplayedLayer> placed;
    for (const ReplayedValues& values : layers) {
        const std::string of = std::to_string(placed.size());
        placed.push_back(place(rig, of, layer, values, options.in_place));
    }
    op::KeptRows kept{rows};
    if (options.told) kept.told = rig.input("told", std::vector<std::int64_t>{*options.told});
    rig.ops().delta_replay({placed, kept, layer.shape, layer.order}, rig.queue());
    rig.finish();
    std::vector<DeltaNetState> states;
    for (std::size_t i = 0; i < placed.size(); ++i) {
        states.push_back({read_off(rig, layers[i].memory_off, placed[i].to.memory),
                          rig.read(placed[i].to.history)});
    }
    return states;
}

}  // namespace strata::test
