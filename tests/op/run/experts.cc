#include "tests/op/run/experts.h"

#include <numeric>

namespace strata::test {
namespace {

using Table = std::vector<const std::byte*>;

// Places the matrices in shuffled order, a few poisoned bytes apart; each by itself where the
// device has their bytes in an order of its own.
Table scatter(Rig& rig, const char* name, const std::vector<TestWeight>& matrices) {
    if (!rig.on_host()) {
        Table table;
        for (const TestWeight& m : matrices) {
            table.push_back(rig.matrix(name, m.bytes, m.type, m.cols));
        }
        return table;
    }
    // A gap that keeps no more alignment than a value of the type needs.
    constexpr std::size_t kGap = 4;
    std::vector<std::size_t> order(matrices.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    Random random(name);
    random.shuffle(order);
    std::vector<std::byte> heap;
    std::vector<std::size_t> offset(matrices.size());
    for (const std::size_t e : order) {
        offset[e] = heap.size();
        append(heap, matrices[e].bytes);
        heap.resize(heap.size() + kGap, kPoison);
    }
    const std::byte* base = rig.input(name, heap);
    Table table;
    for (const std::size_t at : offset) table.push_back(base + at);
    return table;
}

}  // namespace

void expect_same_output(const std::string& what, const ExpertsOutput& got,
                        const ExpertsOutput& want) {
    expect_same_bits(what + ", y", got.y, want.y);
    expect_equal(what + ", chosen", got.chosen, want.chosen);
    expect_same_bits(what + ", share", got.share, want.share);
}

ExpertsOutput run_experts(TestBackend& backend, const std::string& label, const ExpertsLayer& layer,
                          const std::vector<float>& x, bool report) {
    Rig rig(backend, "experts, " + label);
    op::Experts args;
    args.x = rig.input("x", x, layer.router.cols);
    args.router = rig.weight("router", layer.router);
    args.experts.gate_at = rig.input("gate_at", scatter(rig, "gate", layer.gate));
    args.experts.up_at = rig.input("up_at", scatter(rig, "up", layer.up));
    args.experts.down_at = rig.input("down_at", scatter(rig, "down", layer.down));
    args.experts.gate_type = layer.gate[0].type;
    args.experts.up_type = layer.up[0].type;
    args.experts.down_type = layer.down[0].type;
    args.experts.count = layer.router.rows;
    args.experts.hidden = layer.gate[0].rows;
    args.shared_scale = rig.weight("shared_scale", layer.shared_scale);
    args.shared_gate = rig.weight("shared_gate", layer.shared_gate);
    args.shared_up = rig.weight("shared_up", layer.shared_up);
    args.shared_down = rig.weight("shared_down", layer.shared_down);
    args.active = layer.active;
    args.renormalize = layer.renormalize;
    args.y = rig.output<float>("y", args.x.rows, args.x.cols);
    if (report) {
        args.chosen = rig.output<std::int32_t>("chosen", args.x.rows, layer.active);
        args.share = rig.output<float>("share", args.x.rows, layer.active);
    }
    rig.ops().experts(args, rig.queue());
    rig.finish();
    if (!report) return {rig.read(args.y.data), {}, {}};
    return {rig.read(args.y.data), rig.read(args.chosen.data), rig.read(args.share.data)};
}

}  // namespace strata::test
