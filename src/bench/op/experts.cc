// op/experts.h. At full width 64 of the 512 experts: the rest would only take memory, for a row
// reads ten.

#include <set>

#include "bench/op/cases.h"

namespace strata::bench {
namespace {

struct Sizes {
    std::int64_t width;
    std::int64_t experts;
    std::int64_t hidden;
    int active;
};

Sizes sizes(const OpOptions& options) {
    return options.smoke ? Sizes{64, 8, 32, 2} : Sizes{2560, 64, 640, 10};
}

// Addresses of `count` equal parts of a weight that holds all experts' rows.
const std::byte* const* addresses(Bed& bed, const op::Weight& all, std::int64_t count) {
    std::vector<const std::byte*> table;
    for (std::int64_t e = 0; e < count; ++e) table.push_back(all.row(e * (all.rows / count)));
    return bed.upload(table);
}

OpCase experts(const OpOptions& options, std::int64_t rows) {
    const Sizes size = sizes(options);
    // Those of the largest file that a bench makes, where a row holds their blocks.
    const quant::Type type = options.smoke ? quant::Type::q4_0 : quant::Type::iq3_xxs;
    const quant::Type down_type = options.smoke ? quant::Type::q4_0 : quant::Type::q2_0;
    const auto own = std::make_shared<Bed>(options, "experts");
    Bed& bed = *own;
    const op::Weight gate = bed.weight(type, size.experts * size.hidden, size.width);
    const op::Weight up = bed.weight(type, size.experts * size.hidden, size.width);
    const op::Weight down = bed.weight(down_type, size.experts * size.width, size.hidden);
    const std::vector<std::int32_t> unset(static_cast<std::size_t>(rows * size.active));
    op::Experts args;
    args.x = bed.matrix(rows, size.width);
    // Repeated rows would tie.
    args.router = {reinterpret_cast<const std::byte*>(bed.floats(size.experts * size.width)),
                   quant::Type::f32, size.experts, size.width, size.width * 4};
    args.experts = {addresses(bed, gate, size.experts),
                    addresses(bed, up, size.experts),
                    addresses(bed, down, size.experts),
                    type,
                    type,
                    down_type,
                    size.experts,
                    size.hidden};
    args.shared_scale = bed.weight(quant::Type::bf16, 1, size.width);
    args.shared_gate = bed.weight(quant::Type::q8_0, size.hidden, size.width);
    args.shared_up = bed.weight(quant::Type::q8_0, size.hidden, size.width);
    args.shared_down = bed.weight(quant::Type::q8_0, size.width, size.hidden);
    args.active = size.active;
    args.y = bed.matrix(rows, size.width);
    args.chosen = {const_cast<std::int32_t*>(bed.upload(unset)), rows, size.active};
    const auto bytes = [=] {
        const auto chosen = own->download(args.chosen.data, args.chosen.size());
        const std::set<std::int32_t> read(chosen.begin(), chosen.end());
        return bytes_of({args.router, args.shared_gate, args.shared_up, args.shared_down}) +
               bytes_of({gate, up, down}) * static_cast<double>(read.size()) /
                   static_cast<double>(size.experts) +
               4.0 * static_cast<double>(args.x.size() + args.y.size());
    };
    return OpCase(
        own, [own, args] { own->ops().experts(args, own->queue()); }, args.y, bytes);
}

}  // namespace

std::vector<OpFamily> expert_families() { return {{"experts", experts}}; }

}  // namespace strata::bench
