// op/stream_read.h and op/streams.h.

#include "bench/op/families.h"

namespace strata::bench {
namespace {

constexpr int kStreams = 4;

struct Sizes {
    std::int64_t width;
    std::int64_t rank;
    std::int64_t vocabulary;
};

Sizes sizes(const Options& options) {
    return options.smoke ? Sizes{64, 32, 100} : Sizes{2560, 320, 248320};
}

void stream_read(benchmark::State& state, const Options& options, std::int64_t rows) {
    const Sizes size = sizes(options);
    const std::int64_t all = kStreams * size.width;
    Bed bed(options, "stream_read");
    op::StreamRead args;
    args.residual = bed.matrix(rows, all);
    args.block_out = bed.matrix(rows, size.width);
    args.block_inject = bed.matrix(rows, kStreams);
    args.norm = bed.floats(all, 0.5, 1.5);
    args.down = bed.weight(quant::Type::bf16, size.rank, all);
    args.up = bed.weight(quant::Type::bf16, all, size.rank);
    args.inject_weight = bed.weight(quant::Type::bf16, kStreams, all);
    args.streams = kStreams;
    args.epsilon = 1e-6f;
    args.x = bed.matrix(rows, size.width);
    args.inject = bed.matrix(rows, kStreams);
    measure(
        state, options, bed, [&] { bed.ops().stream_read(args, bed.queue()); }, args.x,
        [&] {
            return bytes_of({args.down, args.up, args.inject_weight}) +
                   4.0 * static_cast<double>(2 * args.residual.size() + 2 * args.x.size());
        });
}

void output_head(benchmark::State& state, const Options& options, std::int64_t rows) {
    const Sizes size = sizes(options);
    Bed bed(options, "output_head");
    op::OutputHead args;
    args.hidden = bed.matrix(rows, size.width);
    args.weight = bed.weight(quant::Type::q8_0, size.vocabulary, size.width);
    args.logits = {bed.zeros(rows * size.vocabulary), rows, size.vocabulary};
    measure(
        state, options, bed, [&] { bed.ops().output_head(args, bed.queue()); }, args.logits,
        [&] {
            return bytes_of({args.weight}) +
                   4.0 * static_cast<double>(args.hidden.size() + args.logits.size());
        });
}

void mtp_fuse(benchmark::State& state, const Options& options, std::int64_t rows) {
    const Sizes size = sizes(options);
    Bed bed(options, "mtp_fuse");
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows), 7);
    op::MtpFuse args;
    args.tokens = {bed.upload(tokens), rows};
    args.table = bed.weight(quant::Type::q8_0, 100, size.width);
    args.residual = bed.matrix(rows, kStreams * size.width);
    args.fuse = bed.weight(quant::Type::q8_0, size.width, 2 * size.width);
    args.norm_embedding = bed.floats(size.width, 0.5, 1.5);
    args.norm_hidden = bed.floats(kStreams * size.width, 0.5, 1.5);
    args.streams = kStreams;
    args.epsilon = 1e-6f;
    args.out = bed.matrix(rows, kStreams * size.width);
    measure(
        state, options, bed, [&] { bed.ops().mtp_fuse(args, bed.queue()); }, args.out,
        [&] { return bytes_of({args.fuse}) + 4.0 * static_cast<double>(2 * args.out.size()); });
}

}  // namespace

void register_streams(const Options& options) {
    const auto add = [&](const char* name, auto body) {
        register_rows(options, name, [options, body](benchmark::State& state, std::int64_t rows) {
            body(state, options, rows);
        });
    };
    add("stream_read", stream_read);
    add("output_head", output_head);
    add("mtp_fuse", mtp_fuse);
}

}  // namespace strata::bench
