// op/dflash_*.h, of a draft of published sizes in the formats that its matrices come in.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>
#include <string>

#include "bench/op/cases.h"

namespace strata::bench {
namespace {

struct Sizes {
    std::int64_t layers;
    std::int64_t width;
    std::int64_t feed;
    std::int64_t features;
    std::int64_t window;
    std::int64_t rank;
    std::int64_t vocabulary;
    int candidates;
    op::DflashShape shape;
    std::int64_t rows_most;  // of a block
};

constexpr int kTaps = 2;
constexpr int kGroup = 16;
constexpr std::int64_t kSlack = 16;  // slots of a ring beyond its window

Sizes sizes(const OpOptions& options) {
    if (options.smoke) return {2, 64, 96, 96, 40, 16, 100, 4, {4, 2, 16, 8}, 8};
    return {5, 2560, 7680, 12800, 2048, 256, 248320, 16, {32, 8, 128, 64}, 8};
}

const double* frequencies(Bed& bed, const Sizes& size) {
    std::vector<double> values;
    for (int i = 0; i < size.shape.rotary_pairs; ++i) {
        values.push_back(std::pow(1e7, -1.0 * i / size.shape.rotary_pairs));
    }
    return bed.upload(values);
}

// Full, of the positions 0, 1, ...
op::DflashCells full_cells(Bed& bed, const Sizes& size) {
    const std::int64_t slots = size.window + kSlack;
    const std::int64_t values = slots * size.shape.kv_heads * size.shape.head_dim;
    std::vector<std::int32_t> positions(static_cast<std::size_t>(slots));
    std::iota(positions.begin(), positions.end(), 0);
    return {bed.halves(values), bed.halves(values),
            const_cast<std::int32_t*>(bed.upload(positions)), op::CacheType::f16, slots};
}

op::DflashConv conv(Bed& bed, const Sizes& size) {
    return {bed.floats(2 * kTaps * size.width),
            bed.weight(quant::Type::bf16, 2 * kTaps * (size.width / kGroup), size.width)};
}

op::DflashLayer layer(Bed& bed, const Sizes& size, quant::Type type) {
    const std::int64_t query = std::int64_t{size.shape.heads} * size.shape.head_dim;
    const std::int64_t kv = std::int64_t{size.shape.kv_heads} * size.shape.head_dim;
    op::DflashLayer own;
    own.attention_norm = bed.floats(size.width, 0.5, 1.5);
    own.attention_conv = conv(bed, size);
    own.query = bed.weight(type, query, size.width);
    own.key = bed.weight(type, kv, size.width);
    own.value = bed.weight(type, kv, size.width);
    own.out = bed.weight(type, size.width, query);
    own.query_norm = bed.floats(size.shape.head_dim, 0.5, 1.5);
    own.key_norm = bed.floats(size.shape.head_dim, 0.5, 1.5);
    own.cells = full_cells(bed, size);
    own.window = size.window;
    own.feed_norm = bed.floats(size.width, 0.5, 1.5);
    own.feed_conv = conv(bed, size);
    own.gate = bed.weight(type, size.feed, size.width);
    own.up = bed.weight(type, size.feed, size.width);
    own.down = bed.weight(type, size.width, size.feed);
    return own;
}

double bytes_of_layer(const op::DflashLayer& own) {
    return bytes_of({own.attention_conv.projection, own.query, own.key, own.value, own.out,
                     own.feed_conv.projection, own.gate, own.up, own.down});
}

OpCase block(const OpOptions& options, std::int64_t rows, quant::Type type) {
    const Sizes size = sizes(options);
    rows = std::min(rows, size.rows_most);
    const auto own = std::make_shared<Bed>(options, "dflash_block");
    Bed& bed = *own;
    const auto layers = std::make_shared<std::vector<op::DflashLayer>>();
    for (std::int64_t l = 0; l < size.layers; ++l) layers->push_back(layer(bed, size, type));
    op::DflashBlock args;
    args.tokens = {bed.upload(std::vector<std::int32_t>(static_cast<std::size_t>(rows), 7)), rows};
    args.first = layers->front().cells.slots;
    args.table = bed.table(quant::Type::q8_0, 100, size.width);
    args.layers = {layers->data(), size.layers};
    args.norm = bed.floats(size.width, 0.5, 1.5);
    args.inverse_frequency = frequencies(bed, size);
    args.shape = size.shape;
    args.taps = kTaps;
    args.group = kGroup;
    args.epsilon = 1e-6f;
    args.hidden = bed.matrix(rows, size.width);
    return OpCase(
        own, [own, layers, args] { own->ops().dflash_block(args, own->queue()); }, args.hidden,
        [=] {
            const op::DflashCells& cells = layers->front().cells;
            const double cell = 2.0 * 2 * size.shape.kv_heads * size.shape.head_dim;
            double bytes = static_cast<double>(size.layers * cells.slots) * cell;
            for (const op::DflashLayer& one : *layers) bytes += bytes_of_layer(one);
            return bytes;
        });
}

OpCase inject(const OpOptions& options, std::int64_t rows, quant::Type type) {
    const Sizes size = sizes(options);
    const std::int64_t kv = std::int64_t{size.shape.kv_heads} * size.shape.head_dim;
    const auto own = std::make_shared<Bed>(options, "dflash_inject");
    Bed& bed = *own;
    const auto layers = std::make_shared<std::vector<op::DflashContextLayer>>();
    for (std::int64_t l = 0; l < size.layers; ++l) {
        layers->push_back({bed.weight(type, kv, size.width), bed.weight(type, kv, size.width),
                           bed.floats(size.shape.head_dim, 0.5, 1.5), full_cells(bed, size)});
    }
    op::DflashInject args;
    args.features = bed.matrix(rows, size.features);
    args.fuse = bed.weight(type, size.width, size.features);
    args.norm = bed.floats(size.width, 0.5, 1.5);
    args.layers = {layers->data(), size.layers};
    args.inverse_frequency = frequencies(bed, size);
    args.shape = size.shape;
    args.epsilon = 1e-6f;
    const op::DflashCells& cells = layers->front().cells;
    constexpr std::int64_t kHalves = sizeof(float) / sizeof(std::uint16_t);
    const MatrixView<const float> keys{static_cast<const float*>(cells.keys), cells.slots,
                                       kv / kHalves};
    return OpCase(
        own, [own, layers, args] { own->ops().dflash_inject(args, own->queue()); }, keys,
        [=] {
            double bytes = bytes_of({args.fuse});
            for (const op::DflashContextLayer& one : *layers)
                bytes += bytes_of({one.key, one.value});
            return bytes;
        });
}

OpCase select(const OpOptions& options, std::int64_t rows, bool drawn) {
    const Sizes size = sizes(options);
    const std::int64_t n = std::min(rows, size.rows_most - 1);
    const auto own = std::make_shared<Bed>(options, "dflash_select");
    Bed& bed = *own;
    op::DflashSelect args;
    args.hidden = bed.matrix(n, size.width);
    args.logits = {bed.floats(n * size.vocabulary, -8, 8), n, size.vocabulary};
    args.anchor = 7;
    if (drawn) args.rule = bed.upload(std::vector<op::DrawRule>{{.temperature = 1, .top_p = 0.9}});
    args.projection = bed.weight(quant::Type::bf16, size.rank, size.width);
    args.predecessor = bed.table(quant::Type::bf16, size.vocabulary, size.rank);
    args.successor = bed.table(quant::Type::bf16, size.vocabulary, size.rank);
    const auto integers = [&](std::int64_t count) {
        return reinterpret_cast<std::int32_t*>(bed.zeros(count));
    };
    args.candidates = {integers(n * size.candidates), n, size.candidates};
    args.scores = {bed.zeros(n * size.candidates), n, size.candidates};
    args.path = {integers(n), n};
    args.confidence = {bed.zeros(n), n};
    args.rows = integers(1);
    return OpCase(
        own, [own, args] { own->ops().dflash_select(args, own->queue()); }, args.scores,
        [=] { return 4.0 * static_cast<double>(args.logits.size()); });
}

using Make = OpCase (*)(const OpOptions& options, std::int64_t rows, quant::Type type);

OpFamily family(const char* name, Make make, quant::Type type) {
    std::string own = std::string(name) + "_" + std::string(quant::info(type).name);
    std::transform(own.begin(), own.end(), own.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return {own,
            [=](const OpOptions& options, std::int64_t rows) { return make(options, rows, type); }};
}

}  // namespace

std::vector<OpFamily> draft_families() {
    std::vector<OpFamily> all;
    for (const quant::Type type :
         {quant::Type::bf16, quant::Type::q8_0, quant::Type::q5_0, quant::Type::q4_0}) {
        all.push_back(family("dflash_block", block, type));
        all.push_back(family("dflash_inject", inject, type));
    }
    for (const bool drawn : {false, true}) {
        all.push_back({drawn ? "dflash_select_drawn" : "dflash_select",
                       [=](const OpOptions& options, std::int64_t rows) {
                           return select(options, rows, drawn);
                       }});
    }
    return all;
}

}  // namespace strata::bench
