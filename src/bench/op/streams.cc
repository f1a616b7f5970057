// op/stream_read.h and op/streams.h.

#include "bench/op/cases.h"

namespace strata::bench {
namespace {

constexpr int kStreams = 4;

struct Sizes {
    std::int64_t width;
    std::int64_t rank;
    std::int64_t vocabulary;
};

Sizes sizes(const OpOptions& options) {
    return options.smoke ? Sizes{64, 32, 100} : Sizes{2560, 320, 248320};
}

OpCase stream_read(const OpOptions& options, std::int64_t rows, quant::Type type) {
    const Sizes size = sizes(options);
    const std::int64_t all = kStreams * size.width;
    const auto own = std::make_shared<Bed>(options, "stream_read");
    Bed& bed = *own;
    op::StreamRead args;
    args.residual = bed.matrix(rows, all);
    args.block_out = bed.matrix(rows, size.width);
    args.block_inject = bed.matrix(rows, kStreams);
    args.norm = bed.floats(all, 0.5, 1.5);
    args.down = bed.weight(type, size.rank, all);
    args.up = bed.weight(type, all, size.rank);
    args.inject_weight = bed.weight(type, kStreams, all);
    args.streams = kStreams;
    args.epsilon = 1e-6f;
    args.x = bed.matrix(rows, size.width);
    args.inject = bed.matrix(rows, kStreams);
    return OpCase(
        own, [own, args] { own->ops().stream_read(args, own->queue()); }, args.x,
        [=] {
            return bytes_of({args.down, args.up, args.inject_weight}) +
                   4.0 * static_cast<double>(2 * args.residual.size() + 2 * args.x.size());
        });
}

OpCase output_head(const OpOptions& options, std::int64_t rows) {
    const Sizes size = sizes(options);
    const auto own = std::make_shared<Bed>(options, "output_head");
    Bed& bed = *own;
    op::OutputHead args;
    args.hidden = bed.matrix(rows, size.width);
    args.weight = bed.weight(quant::Type::q8_0, size.vocabulary, size.width);
    args.logits = {bed.zeros(rows * size.vocabulary), rows, size.vocabulary};
    return OpCase(
        own, [own, args] { own->ops().output_head(args, own->queue()); }, args.logits,
        [=] {
            return bytes_of({args.weight}) +
                   4.0 * static_cast<double>(args.hidden.size() + args.logits.size());
        });
}

OpCase mtp_fuse(const OpOptions& options, std::int64_t rows) {
    const Sizes size = sizes(options);
    const auto own = std::make_shared<Bed>(options, "mtp_fuse");
    Bed& bed = *own;
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows), 7);
    op::MtpFuse args;
    args.tokens = {bed.upload(tokens), rows};
    args.table = bed.table(quant::Type::q8_0, 100, size.width);
    args.residual = bed.matrix(rows, kStreams * size.width);
    args.fuse = bed.weight(quant::Type::q8_0, size.width, 2 * size.width);
    args.norm_embedding = bed.floats(size.width, 0.5, 1.5);
    args.norm_hidden = bed.floats(kStreams * size.width, 0.5, 1.5);
    args.streams = kStreams;
    args.epsilon = 1e-6f;
    args.out = bed.matrix(rows, kStreams * size.width);
    return OpCase(
        own, [own, args] { own->ops().mtp_fuse(args, own->queue()); }, args.out,
        [=] { return bytes_of({args.fuse}) + 4.0 * static_cast<double>(2 * args.out.size()); });
}

}  // namespace

std::vector<OpFamily> stream_families() {
    const auto reads = [](quant::Type type) {
        return [type](const OpOptions& options, std::int64_t rows) {
            return stream_read(options, rows, type);
        };
    };
    return {{"stream_read", reads(quant::Type::bf16)},
            {"stream_read_q8_0", reads(quant::Type::q8_0)},
            {"output_head", output_head},
            {"mtp_fuse", mtp_fuse}};
}

}  // namespace strata::bench
