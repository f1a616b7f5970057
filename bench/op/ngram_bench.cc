// op/ngram.h: the mix, for the gather reads a few rows alone.

#include "bench/op/families.h"

namespace strata::bench {
namespace {

void ngram_mix(benchmark::State& state, const Options& options, std::int64_t rows) {
    constexpr int kStreams = 4;
    constexpr int kKernel = 4;
    constexpr int kDilation = 3;
    const std::int64_t width = options.smoke ? 64 : 2560;
    const std::int64_t all = kStreams * width;
    const std::int64_t history = (kKernel - 1) * kDilation * all;
    Bed bed(options, "ngram_mix");
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
    measure(
        state, options, bed, [&] { bed.ops().ngram_mix(args, bed.queue()); }, args.trace,
        [&] {
            return bytes_of({args.key, args.value}) +
                   4.0 * static_cast<double>(args.e.size() + 3 * args.residual.size() +
                                             2 * history + all * kKernel);
        });
}

}  // namespace

void register_ngram(const Options& options) {
    register_rows(options, "ngram_mix", [options](benchmark::State& state, std::int64_t rows) {
        ngram_mix(state, options, rows);
    });
}

}  // namespace strata::bench
