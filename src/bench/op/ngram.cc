// op/ngram.h: the mix, for the gather reads a few rows alone.

#include "bench/op/cases.h"

namespace strata::bench {
namespace {

OpCase ngram_mix(const OpOptions& options, std::int64_t rows) {
    constexpr int kStreams = 4;
    constexpr int kKernel = 4;
    constexpr int kDilation = 3;
    const std::int64_t width = options.smoke ? 64 : 2560;
    const std::int64_t all = kStreams * width;
    const std::int64_t history = (kKernel - 1) * kDilation * all;
    const auto own = std::make_shared<Bed>(options, "ngram_mix");
    Bed& bed = *own;
    op::NgramMix args;
    args.e = bed.matrix(rows, width);
    args.residual = bed.matrix(rows, all);
    args.key = bed.weight(quant::Type::q8_0, all, width);
    args.value = bed.weight(quant::Type::bf16, width, width);
    args.norm_key = bed.floats(all, 0.5, 1.5);
    args.norm_query = bed.floats(all, 0.5, 1.5);
    args.norm_conv = bed.floats(all, 0.5, 1.5);
    args.conv = bed.floats(all * kKernel);
    args.kernel = kKernel;
    args.dilation = kDilation;
    args.streams = kStreams;
    args.epsilon = 1e-6f;
    args.history_from = bed.floats(history);
    args.history_to = bed.zeros(history);
    args.trace = bed.matrix(rows, all);
    return OpCase(
        own, [own, args] { own->ops().ngram_mix(args, own->queue()); }, args.trace,
        [=] {
            return bytes_of({args.key, args.value}) +
                   4.0 * static_cast<double>(args.e.size() + 3 * args.residual.size() +
                                             2 * history + all * kKernel);
        });
}

}  // namespace

std::vector<OpFamily> ngram_families() { return {{"ngram_mix", ngram_mix}}; }

}  // namespace strata::bench
