// op/delta_net.h: both forms, and the replay of a whole window.

#include "bench/op/cases.h"

namespace strata::bench {
namespace {

op::DeltaNet make_args(Bed& bed, const OpOptions& options, std::int64_t rows, op::DeltaForm form) {
    op::DeltaNet args;
    args.shape =
        options.smoke ? op::DeltaShape{2, 6, 32, 32, 4} : op::DeltaShape{16, 48, 128, 128, 4};
    const std::int64_t width = options.smoke ? 64 : 2560;
    const op::DeltaShape& shape = args.shape;
    const std::int64_t channels = shape.channels();
    const std::int64_t memory =
        std::int64_t{1} * shape.value_heads * shape.key_dim * shape.value_dim;
    const std::int64_t history = (shape.kernel - 1) * channels;
    args.x = bed.matrix(rows, width);
    args.qkv = bed.weight(quant::Type::q8_0, channels, width);
    args.gate = bed.weight(quant::Type::q8_0, shape.value_width(), width);
    args.beta_weight = bed.weight(quant::Type::bf16, shape.value_heads, width);
    args.alpha_weight = bed.weight(quant::Type::bf16, shape.value_heads, width);
    args.conv = bed.floats(channels * shape.kernel);
    args.decay_rate = bed.floats(shape.value_heads, -1, 0);
    args.decay_bias = bed.floats(shape.value_heads);
    args.norm = bed.floats(shape.value_dim, 0.5, 1.5);
    args.out = bed.weight(quant::Type::q8_0, width, shape.value_width());
    args.form = form;
    args.epsilon = 1e-6f;
    args.from = {bed.floats(memory), bed.floats(history)};
    args.to = {bed.zeros(memory), bed.zeros(history)};
    if (rows < kGpuPromptRows) {
        args.trace = {bed.matrix(rows, channels), bed.matrix(rows, channels),
                      bed.matrix(rows, shape.value_heads), bed.matrix(rows, shape.value_heads)};
    }
    args.y = bed.matrix(rows, width);
    return args;
}

double state_bytes(const op::DeltaShape& shape) {
    return 4.0 * (static_cast<double>(shape.value_heads) * shape.key_dim * shape.value_dim +
                  static_cast<double>(shape.kernel - 1) * shape.channels());
}

OpCase delta_net(const OpOptions& options, std::int64_t rows, op::DeltaForm form) {
    const auto own = std::make_shared<Bed>(options, "delta_net");
    Bed& bed = *own;
    const op::DeltaNet args = make_args(bed, options, rows, form);
    // The chunked form is for prompts, which are never so short in the recurrent one.
    const bool prompt = form == op::DeltaForm::chunked || rows == kGpuPromptRows;
    const auto run = prompt ? bed.ops().for_prompts().delta_net : bed.ops().delta_net;
    return OpCase(
        own, [own, run, args] { run(args, own->queue()); }, args.y,
        [=] {
            return bytes_of({args.qkv, args.gate, args.beta_weight, args.alpha_weight, args.out}) +
                   2 * state_bytes(args.shape) +
                   4.0 * static_cast<double>(args.x.size() + args.y.size() +
                                             2 * args.trace.projected.size());
        });
}

OpCase delta_replay(const OpOptions& options, std::int64_t rows) {
    const auto own = std::make_shared<Bed>(options, "delta_replay");
    Bed& bed = *own;
    const op::DeltaNet window = make_args(bed, options, rows, op::DeltaForm::recurrent);
    bed.ops().delta_net(window, bed.queue());
    const op::ReplayedLayer layer{window.trace, window.from, window.to};
    const std::int64_t memory =
        std::int64_t{1} * window.shape.value_heads * window.shape.key_dim * window.shape.value_dim;
    return OpCase(
        own,
        [=] {
            own->ops().delta_replay({{&layer, 1}, {rows}, window.shape, window.order},
                                    own->queue());
        },
        {layer.to.memory, 1, memory},
        [=] {
            return 2 * state_bytes(window.shape) +
                   4.0 * static_cast<double>(layer.trace.convolved.size());
        });
}

}  // namespace

std::vector<OpFamily> delta_families() {
    const auto form = [](op::DeltaForm chosen) {
        return [chosen](const OpOptions& options, std::int64_t rows) {
            return delta_net(options, rows, chosen);
        };
    };
    return {{"delta_net_recurrent", form(op::DeltaForm::recurrent), true},
            {"delta_net_chunked", form(op::DeltaForm::chunked), true},
            {"delta_replay", delta_replay}};
}

}  // namespace strata::bench
