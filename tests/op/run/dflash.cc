#include "tests/op/run/dflash.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace strata::test {
namespace {

// Read alone where `written` is false: the rig then checks that they stay.
template <typename T>
T* place(Rig& rig, const char* name, const std::vector<T>& values, bool written) {
    return written ? rig.state(name, values) : const_cast<T*>(rig.input(name, values));
}

op::DflashCells place(Rig& rig, const DflashRing& ring, bool written) {
    op::DflashCells cells;
    cells.keys = place(rig, "cell keys", ring.keys, written);
    cells.values = place(rig, "cell values", ring.values, written);
    cells.position = place(rig, "cell positions", ring.position, written);
    cells.type = ring.row.type;
    cells.slots = ring.slots;
    return cells;
}

// Where rows stand: told, or at odd places, on devices that record, read from memory below a bound.
template <typename Args>
void place_first(Rig& rig, std::int64_t first, Args& args) {
    constexpr std::int64_t kBeyond = 77;
    args.first = first;
    if (first % 2 == 0 || rig.on_host()) return;
    args.first_at = rig.input("first", std::vector<std::int64_t>{first});
    args.first = first + kBeyond;
}

op::DflashConv place(Rig& rig, const DflashConvParts& conv) {
    return {rig.input("conv base", conv.base), rig.weight("conv projection", conv.projection)};
}

op::DflashLayer place(Rig& rig, const DflashParts& from, const DflashRing& ring) {
    op::DflashLayer layer;
    layer.attention_norm = rig.input("attention_norm", from.attention_norm);
    layer.attention_conv = place(rig, from.attention_conv);
    layer.query = rig.weight("query", from.query);
    layer.key = rig.weight("key", from.key);
    layer.value = rig.weight("value", from.value);
    layer.out = rig.weight("out", from.out);
    layer.query_norm = rig.input("query_norm", from.query_norm);
    layer.key_norm = rig.input("key_norm", from.key_norm);
    layer.cells = place(rig, ring, false);
    layer.window = from.window;
    layer.feed_norm = rig.input("feed_norm", from.feed_norm);
    layer.feed_conv = place(rig, from.feed_conv);
    layer.gate = rig.weight("gate", from.gate);
    layer.up = rig.weight("up", from.up);
    layer.down = rig.weight("down", from.down);
    return layer;
}

}  // namespace

void expect_same_output(const std::string& what, const std::vector<DflashRing>& got,
                        const std::vector<DflashRing>& want) {
    for (std::size_t l = 0; l < want.size(); ++l) {
        expect_equal(what + ", positions", got[l].position, want[l].position);
        EXPECT_TRUE(got[l].keys == want[l].keys) << what << ": keys differ in bits";
        EXPECT_TRUE(got[l].values == want[l].values) << what << ": values differ in bits";
    }
}

void expect_same_output(const std::string& what, const DflashInjected& got,
                        const DflashInjected& want) {
    expect_same_output(what, got.rings, want.rings);
    expect_equal(what + ", replaced", got.replaced, want.replaced);
}

void expect_same_output(const std::string& what, const DflashWalked& got,
                        const DflashWalked& want) {
    EXPECT_EQ(got.rows, want.rows) << what;
    expect_equal(what + ", candidates", got.candidates, want.candidates);
    expect_equal(what + ", path", got.path, want.path);
    expect_same_bits(what + ", scores", got.scores, want.scores);
    expect_same_bits(what + ", confidence", got.confidence, want.confidence);
}

DflashRing empty_ring(const DflashDraft& draft, op::CacheType type, std::int64_t slots) {
    DflashRing ring;
    ring.row = {type, draft.sizes.shape.kv_heads, draft.sizes.shape.head_dim};
    ring.slots = slots;
    ring.position.assign(static_cast<std::size_t>(slots), -1);
    ring.keys.assign(static_cast<std::size_t>(slots * ring.row.bytes()), kPoison);
    ring.values = ring.keys;
    return ring;
}

void put_cell(DflashRing& ring, Random& random, std::int64_t position) {
    const std::int64_t slot = position % ring.slots;
    ring.position[slot] = static_cast<std::int32_t>(position);
    for (std::vector<std::byte>* rows : {&ring.keys, &ring.values}) {
        const auto row =
            cache_row_oracle(ring.row, random.floats(ring.row.heads * ring.row.dim, -2, 2));
        std::copy(row.begin(), row.end(), rows->begin() + slot * ring.row.bytes());
    }
}

std::vector<DflashCell> cells_of(const DflashRing& ring) {
    std::vector<DflashCell> cells;
    for (std::int64_t s = 0; s < ring.slots; ++s) {
        if (ring.position[s] < 0) continue;
        const auto key = ring.key(s);
        const auto value = ring.value(s);
        cells.push_back(
            {ring.position[s], Row(key.begin(), key.end()), Row(value.begin(), value.end())});
    }
    return cells;
}

DflashInjected run_inject(TestBackend& backend, const std::string& label, const DflashDraft& draft,
                          const std::vector<float>& features, std::int64_t first,
                          const std::vector<DflashRing>& rings) {
    Rig rig(backend, "dflash_inject, " + label);
    std::vector<op::DflashContextLayer> layers;
    for (std::size_t l = 0; l < draft.layers.size(); ++l) {
        const DflashParts& from = draft.layers[l];
        layers.push_back({rig.weight("key", from.key), rig.weight("value", from.value),
                          rig.input("key_norm", from.key_norm), place(rig, rings[l], true)});
    }
    op::DflashInject args;
    args.features = rig.input("features", features, draft.sizes.features);
    place_first(rig, first, args);
    args.fuse = rig.weight("fuse", draft.fuse);
    args.norm = rig.input("norm", draft.fuse_norm);
    args.layers = {layers.data(), static_cast<std::int64_t>(layers.size())};
    args.inverse_frequency = rig.input("inverse_frequency", draft.inverse_frequency);
    args.shape = draft.sizes.shape;
    args.epsilon = draft.epsilon;
    const auto replaced = rig.output<std::int32_t>("replaced", 1, args.features.rows);
    args.replaced = {replaced.data, args.features.rows};
    rig.ops().dflash_inject(args, rig.queue());
    rig.finish();
    DflashInjected result{rings, rig.read(replaced.data)};
    for (std::size_t l = 0; l < layers.size(); ++l) {
        const op::DflashCells& cells = layers[l].cells;
        result.rings[l].position = rig.read(cells.position);
        result.rings[l].keys = rig.read(static_cast<const std::byte*>(cells.keys));
        result.rings[l].values = rig.read(static_cast<const std::byte*>(cells.values));
    }
    return result;
}

std::vector<float> run_block(TestBackend& backend, const std::string& label,
                             const DflashDraft& draft, const std::vector<std::int32_t>& tokens,
                             std::int64_t first, const std::vector<DflashRing>& rings) {
    Rig rig(backend, "dflash_block, " + label);
    std::vector<op::DflashLayer> layers;
    for (std::size_t l = 0; l < draft.layers.size(); ++l) {
        layers.push_back(place(rig, draft.layers[l], rings[l]));
    }
    op::DflashBlock args;
    args.tokens = {rig.input("tokens", tokens), static_cast<std::int64_t>(tokens.size())};
    place_first(rig, first, args);
    args.table = rig.table("table", draft.table);
    args.layers = {layers.data(), static_cast<std::int64_t>(layers.size())};
    args.norm = rig.input("norm", draft.norm);
    args.inverse_frequency = rig.input("inverse_frequency", draft.inverse_frequency);
    args.shape = draft.sizes.shape;
    args.taps = draft.sizes.taps;
    args.group = draft.sizes.group;
    args.epsilon = draft.epsilon;
    args.hidden = rig.output<float>("hidden", args.tokens.size, draft.sizes.width);
    rig.ops().dflash_block(args, rig.queue());
    rig.finish();
    return rig.read(args.hidden.data);
}

DflashWalked run_select(TestBackend& backend, const std::string& label,
                        const DflashSelector& selector, const std::vector<float>& hidden,
                        const std::vector<float>& logits, std::int64_t vocabulary_rows,
                        std::int32_t anchor, const DflashRule* rule) {
    Rig rig(backend, "dflash_select, " + label);
    op::DflashSelect args;
    args.hidden = rig.input("hidden", hidden, selector.projection.cols);
    args.logits = rig.input("logits", logits, vocabulary_rows);
    if (anchor % 2 == 0) {
        args.anchor = anchor;
    } else {
        args.anchor_at = rig.input("anchor", std::vector<std::int32_t>{anchor});
    }
    if (!selector.token_of_row.empty()) {
        args.token_of_row = {rig.input("token_of_row", selector.token_of_row), vocabulary_rows};
    }
    if (rule != nullptr) {
        args.rule = rig.input("rule", std::vector<op::DrawRule>{rule->rule});
        args.penalized = {rig.input("penalized", rule->penalized),
                          static_cast<std::int64_t>(rule->penalized.size())};
    }
    args.projection = rig.weight("projection", selector.projection);
    args.predecessor = rig.table("predecessor", selector.predecessor);
    args.successor = rig.table("successor", selector.successor);
    const std::int64_t n = args.logits.rows;
    // Tokens are -1, which is poison, where the walk did not come.
    const std::vector<std::int32_t> none(static_cast<std::size_t>(n * selector.candidates), 7);
    args.candidates = rig.state("candidates", none, selector.candidates);
    args.scores = rig.output<float>("scores", n, selector.candidates);
    args.path = {rig.state("path", std::vector<std::int32_t>(static_cast<std::size_t>(n), 7)), n};
    args.confidence = {rig.output<float>("confidence", 1, n).data, n};
    args.rows = rig.output<std::int32_t>("rows", 1, 1).data;
    rig.ops().dflash_select(args, rig.queue());
    rig.finish();
    return {rig.read(args.candidates.data), rig.read(args.scores.data), rig.read(args.path.data),
            rig.read(args.confidence.data), rig.read(args.rows)[0]};
}

}  // namespace strata::test
