// op/sparse_attention.h, far enough into a context that blocks are dropped.

#include <algorithm>
#include <cmath>

#include "bench/op/cases.h"

namespace strata::bench {
namespace {

struct Sizes {
    op::AttentionShape shape;
    std::int64_t width;
    std::int64_t first;
};

Sizes sizes(const OpOptions& options) {
    if (options.smoke) return {{6, 2, 32, 2, 32, 4, 4, 8}, 64, 61};
    return {{24, 2, 256, 4, 128, 4, 512, 32}, 2560, 16381};
}

OpCase sparse_attention(const OpOptions& options, std::int64_t rows) {
    const auto& [shape, width, first] = sizes(options);
    const std::int64_t d = shape.head_dim;
    const std::int64_t context = first + rows;
    const std::int64_t entries = context * shape.kv_heads * d;
    const auto own = std::make_shared<Bed>(options, "sparse_attention");
    Bed& bed = *own;
    op::SparseAttention args;
    args.x = bed.matrix(rows, width);
    args.first = first;
    args.query = bed.weight(quant::Type::q8_0, shape.heads * 2 * d, width);
    args.key = bed.weight(quant::Type::q8_0, shape.kv_heads * d, width);
    args.value = bed.weight(quant::Type::q8_0, shape.kv_heads * d, width);
    args.out = bed.weight(quant::Type::q8_0, width, shape.heads * d);
    args.index_query = bed.weight(quant::Type::bf16, shape.index_heads * shape.index_dim, width);
    args.index_key = bed.weight(quant::Type::bf16, shape.index_dim, width);
    args.query_norm = bed.floats(d, 0.5, 1.5);
    args.key_norm = bed.floats(d, 0.5, 1.5);
    args.index_query_norm = bed.floats(shape.index_dim, 0.5, 1.5);
    args.index_key_norm = bed.floats(shape.index_dim, 0.5, 1.5);
    std::vector<double> frequencies;
    for (int i = 0; i < shape.rotary_pairs; ++i) {
        frequencies.push_back(std::pow(1e7, -1.0 * i / shape.rotary_pairs));
    }
    args.inverse_frequency = bed.upload(frequencies);
    args.shape = shape;
    args.epsilon = 1e-6f;
    args.cache = {bed.halves(entries), bed.halves(entries), op::CacheType::f16,
                  bed.floats(context / shape.ratio * shape.index_dim), context};
    args.raw_from = bed.floats(std::int64_t{shape.ratio - 1} * shape.index_dim);
    args.raw_to = bed.zeros(std::int64_t{shape.ratio - 1} * shape.index_dim);
    args.y = bed.matrix(rows, width);
    const double selected = static_cast<double>(shape.blocks_kept) * shape.ratio;
    return OpCase(
        own, [own, args] { own->ops().sparse_attention(args, own->queue()); }, args.y,
        [=] {
            // Rows may share what they select; counted is what one row reads, once.
            return bytes_of({args.query, args.key, args.value, args.out, args.index_query,
                             args.index_key}) +
                   selected * 2 * shape.kv_heads * static_cast<double>(d) * 2 +
                   4.0 * static_cast<double>(context / shape.ratio * shape.index_dim) +
                   4.0 * static_cast<double>(args.x.size() + args.y.size());
        });
}

}  // namespace

std::vector<OpFamily> attention_families() { return {{"sparse_attention", sparse_attention}}; }

}  // namespace strata::bench
