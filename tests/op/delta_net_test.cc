// op/delta_net.h on every backend in the build, against a float64 oracle of the recurrence.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "tests/op/run/delta_net.h"
#include "tests/support/everywhere.h"

namespace strata::test {
namespace {

constexpr op::DeltaShape kShape{
    .key_heads = 2, .value_heads = 6, .key_dim = 16, .value_dim = 16, .kernel = 4};
constexpr std::int64_t kWidth = 32;

std::string name(const char* what, std::int64_t rows) {
    return std::string(what) + ", T=" + std::to_string(rows);
}

void expect_oracle(const std::string& label, const DeltaNetLayer& layer, const DeltaNetState& from,
                   const std::vector<float>& x, DeltaOptions options = {}) {
    const DeltaNetResult want = delta_net_oracle(layer, rows_of(x, layer.width()), from);
    on_backends(
        label, [&](TestBackend& b) { return run_delta_net(b, label, layer, from, x, options); },
        [&](const DeltaNetOutput& got) {
            expect_result(label, got, want, Tolerance::recurrence(), options.trace);
        });
}

// The rows of x in calls of `rows` rows, state carried on, every other call in place.
DeltaNetOutput run_in_parts(TestBackend& backend, const DeltaNetLayer& layer,
                            const DeltaNetState& from, const std::vector<float>& x,
                            std::int64_t rows, DeltaOptions options = {}) {
    const std::int64_t total = static_cast<std::int64_t>(x.size()) / layer.width();
    DeltaNetOutput all;
    all.state = from;
    for (std::int64_t first = 0; first < total; first += rows) {
        const std::int64_t n = std::min(rows, total - first);
        options.in_place = !options.in_place;
        const auto got = run_delta_net(backend, "in parts", layer, all.state,
                                       slice(x, first, n, layer.width()), options);
        append(all.y, got.y);
        all.state = got.state;
    }
    return all;
}

DeltaNetState replay_one(TestBackend& backend, const DeltaNetLayer& layer,
                         const ReplayedValues& values, std::int64_t rows,
                         const ReplayOptions& options = {}) {
    return run_delta_replay(backend, "one layer", layer, {values}, rows, options).front();
}

TEST(DeltaNet, matches_the_oracle_for_every_number_of_rows) {
    Random random("delta_net rows");
    const auto layer = random_delta_net(random, Types::mixed(), kShape, kWidth);
    for (const std::int64_t rows : kRowCounts) {
        const auto x = random.floats(rows * kWidth, -2, 2);
        expect_oracle(name("start", rows), layer, zero_delta_state(layer), x, {.trace = true});
        expect_oracle(name("middle", rows), layer, random_delta_state(random, layer), x);
    }
}

TEST(DeltaNet, matches_the_oracle_in_every_weight_type) {
    for (const quant::Type type : kWeightTypes) {
        Random random("delta_net types", static_cast<std::uint64_t>(type));
        const auto layer = random_delta_net(random, Types(type), kShape, 96);
        expect_oracle(std::string(quant::info(type).name), layer, random_delta_state(random, layer),
                      random.floats(5 * 96, -2, 2), {.trace = true});
    }
}

TEST(DeltaNet, matches_the_oracle_in_odd_shapes_and_both_head_orders) {
    const op::DeltaShape shapes[] = {
        {.key_heads = 1, .value_heads = 1, .key_dim = 2, .value_dim = 3, .kernel = 2},
        {.key_heads = 3, .value_heads = 3, .key_dim = 5, .value_dim = 7, .kernel = 3},
        {.key_heads = 3, .value_heads = 9, .key_dim = 7, .value_dim = 5, .kernel = 4},
        {.key_heads = 5, .value_heads = 10, .key_dim = 12, .value_dim = 20, .kernel = 1}};
    Random random("delta_net shapes");
    for (const op::DeltaShape& shape : shapes) {
        for (const auto order : {op::HeadOrder::grouped, op::HeadOrder::tiled}) {
            for (const auto form : {op::DeltaForm::recurrent, op::DeltaForm::chunked}) {
                auto layer = random_delta_net(random, Types(quant::Type::bf16), shape, 33);
                layer.order = order;
                expect_oracle("Hk=" + std::to_string(shape.key_heads) +
                                  " Hv=" + std::to_string(shape.value_heads) + " order " +
                                  std::to_string(static_cast<int>(order)) + " form " +
                                  std::to_string(static_cast<int>(form)),
                              layer, random_delta_state(random, layer),
                              random.floats(67 * 33, -2, 2), {.form = form, .trace = true});
            }
        }
    }
}

TEST(DeltaNet, recurrent_rows_and_states_are_bit_identical_however_they_are_split) {
    Random random("delta_net splits");
    const auto layer = random_delta_net(random, Types::mixed(), kShape, kWidth);
    for (const std::int64_t rows : kRowCounts) {
        const auto from = random_delta_state(random, layer);
        const auto x = random.floats(rows * kWidth, -2, 2);
        for (TestBackend& backend : backends()) {
            const auto together = run_delta_net(backend, "together", layer, from, x);
            for (const std::int64_t part : {1, 2, 7, 64}) {
                if (part > 1 && part >= rows) continue;
                expect_same_output(
                    name(backend.name.c_str(), rows) + " in " + std::to_string(part) + "s",
                    run_in_parts(backend, layer, from, x, part), together);
            }
        }
    }
}

TEST(DeltaNet, wide_rows_are_the_same_on_any_number_of_threads) {
    const op::DeltaShape shape{
        .key_heads = 4, .value_heads = 12, .key_dim = 64, .value_dim = 32, .kernel = 4};
    Random random("delta_net wide");
    const auto layer = random_delta_net(random, Types::mixed(), shape, 128);
    const auto from = random_delta_state(random, layer);
    const auto x = random.floats(66 * 128, -2, 2);
    for (const auto form : {op::DeltaForm::recurrent, op::DeltaForm::chunked}) {
        expect_oracle("wide, T=1", layer, from, slice(x, 0, 1, 128), {.form = form});
        expect_oracle("wide, T=66", layer, from, x, {.form = form, .trace = true});
    }
    for (TestBackend& backend : backends()) {
        const auto all = run_delta_net(backend, "wide", layer, from, x, {.trace = true});
        const auto parts = run_in_parts(backend, layer, from, x, 1);
        expect_same_bits(backend.name + ", y", parts.y, all.y);
        expect_same_output(backend.name, parts.state, all.state);
        expect_same_output(backend.name + ", replay",
                           replay_one(backend, layer, {from, all.trace, from}, 66), all.state);
    }
}

TEST(DeltaNet, heads_as_long_as_wide_are_the_same_however_they_are_split) {
    Random random("delta_net square");
    for (const int dim : {32, 128}) {
        const op::DeltaShape shape{
            .key_heads = 1, .value_heads = 2, .key_dim = dim, .value_dim = dim, .kernel = 4};
        // With both ways that rows go to the last product: as they are, and rounded.
        const Types types(dim == 32 ? quant::Type::bf16 : quant::Type::q8_0);
        const auto layer = random_delta_net(random, types, shape, 32);
        const auto from = random_delta_state(random, layer);
        const auto x = random.floats(10 * 32, -2, 2);
        expect_oracle("square", layer, from, x, {.trace = true});
        for (TestBackend& backend : backends()) {
            const auto all = run_delta_net(backend, "all", layer, from, x, {.trace = true});
            const auto parts = run_in_parts(backend, layer, from, x, 3);
            expect_same_bits(backend.name + ", y", parts.y, all.y);
            expect_same_output(backend.name, parts.state, all.state);
            expect_same_output(backend.name + ", replay",
                               replay_one(backend, layer, {from, all.trace, from}, 10), all.state);
        }
    }
}

// More rows than are prepared together, of heads that share a key head with others in either order.
TEST(DeltaNet, long_heads_with_several_key_heads_match_the_oracle_apart_and_in_place) {
    const op::DeltaShape shape{
        .key_heads = 2, .value_heads = 4, .key_dim = 128, .value_dim = 128, .kernel = 4};
    Random random("delta_net long heads");
    auto layer = random_delta_net(random, Types(quant::Type::q8_0), shape, 32);
    const auto from = random_delta_state(random, layer);
    const auto x = random.floats(10 * 32, -2, 2);
    for (const auto order : {op::HeadOrder::grouped, op::HeadOrder::tiled}) {
        layer.order = order;
        const std::string label = "long heads, order " + std::to_string(static_cast<int>(order));
        expect_oracle(label, layer, from, x, {.trace = true});
        for (TestBackend& backend : backends()) {
            const auto apart = run_delta_net(backend, label, layer, from, x);
            expect_same_output(backend.name + label,
                               run_delta_net(backend, label, layer, from, x, {.in_place = true}),
                               apart);
            expect_same_output(backend.name + label, run_in_parts(backend, layer, from, x, 1).state,
                               apart.state);
        }
    }
}

TEST(DeltaNet, the_state_may_be_advanced_in_place) {
    Random random("delta_net in place");
    const auto layer = random_delta_net(random, Types::mixed(), kShape, kWidth);
    for (const auto form : {op::DeltaForm::recurrent, op::DeltaForm::chunked}) {
        for (const std::int64_t rows : {1, 2, 3, 4, 65}) {
            const auto from = random_delta_state(random, layer);
            const auto x = random.floats(rows * kWidth, -2, 2);
            for (TestBackend& backend : backends()) {
                expect_same_output(name(backend.name.c_str(), rows),
                                   run_delta_net(backend, "in place", layer, from, x,
                                                 {.form = form, .in_place = true}),
                                   run_delta_net(backend, "apart", layer, from, x, {.form = form}));
            }
        }
    }
}

TEST(DeltaNet, a_trace_changes_nothing_else) {
    Random random("delta_net trace");
    const auto layer = random_delta_net(random, Types::mixed(), kShape, kWidth);
    const auto from = random_delta_state(random, layer);
    const auto x = random.floats(5 * kWidth, -2, 2);
    for (TestBackend& backend : backends()) {
        auto with = run_delta_net(backend, "with", layer, from, x, {.trace = true});
        with.trace = {};
        expect_same_output(backend.name, with, run_delta_net(backend, "without", layer, from, x));
    }
}

TEST(DeltaNet, the_chunked_form_matches_the_oracle_and_the_recurrent_form) {
    Random random("delta_net chunked");
    const auto layer = random_delta_net(random, Types::mixed(), kShape, kWidth);
    for (const std::int64_t rows : kRowCounts) {
        const auto from = random_delta_state(random, layer);
        const auto x = random.floats(rows * kWidth, -2, 2);
        const DeltaOptions chunked{.form = op::DeltaForm::chunked, .trace = true};
        expect_oracle(name("chunked", rows), layer, from, x, chunked);
        for (TestBackend& backend : backends()) {
            const auto got = run_delta_net(backend, "chunked", layer, from, x, chunked);
            const auto want = run_delta_net(backend, "recurrent", layer, from, x);
            expect_close(name("y", rows), got.y, want.y, kWidth, Tolerance::recurrence());
            expect_close(name("memory", rows), got.state.memory, want.state.memory, 16 * 16,
                         Tolerance::recurrence());
        }
    }
}

TEST(DeltaNet, chunked_calls_may_follow_one_another_at_any_row) {
    Random random("delta_net chunked splits");
    const auto layer = random_delta_net(random, Types::mixed(), kShape, kWidth);
    const auto from = random_delta_state(random, layer);
    const auto x = random.floats(150 * kWidth, -2, 2);
    const DeltaNetResult want = delta_net_oracle(layer, rows_of(x, kWidth), from);
    for (TestBackend& backend : backends()) {
        for (const std::int64_t part : {1, 7, 63, 65, 100}) {
            const auto got =
                run_in_parts(backend, layer, from, x, part, {.form = op::DeltaForm::chunked});
            expect_close(name("y", part), got.y, want.y, Tolerance::recurrence());
            expect_close(name("memory", part), got.state.memory, want.memory,
                         Tolerance::recurrence());
        }
    }
}

// All heads decay by about exp(-strength) a row.
DeltaNetLayer with_decay(DeltaNetLayer layer, float strength) {
    layer.decay_rate.assign(layer.decay_rate.size(), -strength);
    layer.decay_bias.assign(layer.decay_bias.size(), 0.5f);
    return layer;
}

TEST(DeltaNet, neither_form_overflows_under_strong_decay) {
    Random random("delta_net strong decay");
    const auto base = random_delta_net(random, Types::mixed(), kShape, kWidth);
    for (const float strength : {1.0f, 16.0f, 200.0f, 1e6f}) {
        const auto layer = with_decay(base, strength);
        const auto from = random_delta_state(random, layer);
        const auto x = random.floats(130 * kWidth, -2, 2);
        for (const auto form : {op::DeltaForm::recurrent, op::DeltaForm::chunked}) {
            expect_oracle("decay " + std::to_string(strength), layer, from, x, {.form = form});
        }
    }
}

TEST(DeltaNet, both_forms_hold_under_weak_and_mixed_decay) {
    Random random("delta_net weak decay");
    const auto base = random_delta_net(random, Types::mixed(), kShape, kWidth);
    auto mixed = with_decay(base, 1e-4f);
    mixed.decay_rate[0] = -50;
    mixed.decay_rate[3] = 0;
    for (const auto& layer : {with_decay(base, 1e-6f), mixed}) {
        const auto from = random_delta_state(random, layer);
        const auto x = random.floats(130 * kWidth, -2, 2);
        for (const auto form : {op::DeltaForm::recurrent, op::DeltaForm::chunked}) {
            expect_oracle("weak decay", layer, from, x, {.form = form});
        }
    }
}

TEST(DeltaNet, a_large_softplus_argument_stays_finite) {
    Random random("delta_net softplus");
    auto layer = random_delta_net(random, Types::mixed(), kShape, kWidth);
    layer.decay_rate.assign(6, -0.01f);
    layer.decay_bias = {-200, -30, 20, 100, 200, 1e4f};
    expect_oracle("softplus", layer, random_delta_state(random, layer),
                  random.floats(3 * kWidth, -2, 2), {.trace = true});
}

TEST(DeltaNet, the_floor_under_the_norms_of_queries_and_keys_is_one_millionth) {
    Random random("delta_net floor");
    const auto layer = random_delta_net(random, Types(quant::Type::f32), kShape, kWidth);
    auto from = random_delta_state(random, layer);
    for (float& value : from.history) value *= 1e-3f;
    // Sums of squares near 1e-6, below it, and zero.
    for (const double size : {1e-3, 1e-5, 0.0}) {
        for (const auto form : {op::DeltaForm::recurrent, op::DeltaForm::chunked}) {
            expect_oracle("inputs of size " + std::to_string(size), layer, from,
                          random.floats(5 * kWidth, -size, size), {.form = form});
        }
    }
}

TEST(DeltaReplay, of_m_rows_is_running_m_rows) {
    Random random("delta_replay");
    for (const auto order : {op::HeadOrder::grouped, op::HeadOrder::tiled}) {
        auto layer = random_delta_net(random, Types::mixed(), kShape, kWidth);
        layer.order = order;
        for (const std::int64_t rows : {1, 2, 3, 5, 8, 17}) {
            const auto from = random_delta_state(random, layer);
            const auto x = random.floats(rows * kWidth, -2, 2);
            for (TestBackend& backend : backends()) {
                const auto all = run_delta_net(backend, "all", layer, from, x, {.trace = true});
                for (std::int64_t m = 1; m <= rows; ++m) {
                    const auto want =
                        run_delta_net(backend, "m rows", layer, from, slice(x, 0, m, kWidth)).state;
                    for (const bool in_place : {false, true}) {
                        const auto got = replay_one(backend, layer, {from, all.trace, from}, m,
                                                    {.in_place = in_place});
                        expect_same_output(
                            name(backend.name.c_str(), rows) + " m=" + std::to_string(m), got,
                            want);
                    }
                }
            }
        }
    }
}

// A few layers that differ in all that is theirs. Of more they come in turns, of which no launch
// takes a whole number.
struct DifferentLayers {
    static constexpr std::size_t kDifferent = 3;
    static constexpr std::int64_t kRows = 5;
    DeltaNetLayer layer;
    std::vector<DeltaNetState> from;
    std::vector<std::vector<float>> x;

    DifferentLayers(Random& random, int dim)
        : layer(random_delta_net(
              random, Types::mixed(),
              {.key_heads = 1, .value_heads = 2, .key_dim = dim, .value_dim = dim, .kernel = 4},
              kWidth)) {
        for (std::size_t i = 0; i < kDifferent; ++i) {
            from.push_back(random_delta_state(random, layer));
            x.push_back(random.floats(kRows * kWidth, -2, 2));
        }
    }

    // After `rows` rows; one of them lies off, if any.
    std::vector<DeltaNetOutput> run(TestBackend& backend, std::int64_t rows,
                                    std::optional<std::size_t> off = {}) const {
        std::vector<DeltaNetOutput> all;
        for (std::size_t i = 0; i < kDifferent; ++i) {
            all.push_back(run_delta_net(
                backend, "layer " + std::to_string(i), layer, from[i], slice(x[i], 0, rows, kWidth),
                {.in_place = true, .trace = true, .memory_off = i == off ? 1 : 0}));
        }
        return all;
    }
    // `count` of them; `to` holds what all rows leave.
    std::vector<ReplayedValues> values(const std::vector<DeltaNetOutput>& all, std::size_t count,
                                       std::optional<std::size_t> off = {}) const {
        std::vector<ReplayedValues> layers;
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t at = i % kDifferent;
            layers.push_back({from[at], all[at].trace, all[at].state, at == off ? 1 : 0});
        }
        return layers;
    }
};

// More layers than a launch takes.
TEST(DeltaReplay, of_many_layers_moves_each_by_as_many_rows_as_memory_tells) {
    Random random("delta_replay told");
    struct Case {
        int dim;
        std::size_t layers;
    };
    // Memories in device memory, in registers, and in those of several blocks a head.
    for (const Case& one : {Case{16, 37}, Case{32, 37}, Case{128, 17}}) {
        const DifferentLayers layers(random, one.dim);
        const std::int64_t rows = DifferentLayers::kRows;
        for (TestBackend& backend : backends()) {
            const std::string label = backend.name + ", dk=" + std::to_string(one.dim);
            auto values = layers.values(layers.run(backend, rows), one.layers);
            for (std::int64_t m = 1; m < rows; ++m) {
                const auto want = layers.run(backend, m);
                const auto got =
                    run_delta_replay(backend, "told", layers.layer, values, rows, {.told = m});
                for (std::size_t i = 0; i < got.size(); ++i) {
                    expect_same_output(label + " m=" + std::to_string(m), got[i],
                                       want[i % want.size()].state);
                }
            }
            // What lies there is not looked at.
            values.resize(2);
            for (ReplayedValues& layer : values) layer.before = layer.from;
            const auto kept =
                run_delta_replay(backend, "all told", layers.layer, values, rows, {.told = rows});
            for (std::size_t i = 0; i < kept.size(); ++i) {
                expect_same_output(label + ", nothing done", kept[i], values[i].from);
            }
        }
    }
}

// Sums may be taken otherwise where memories cannot be read in fours.
TEST(DeltaReplay, of_layers_that_lie_differently_has_the_bits_of_each) {
    Random random("delta_replay off");
    constexpr std::size_t kOff = 1;
    for (const int dim : {32, 128}) {
        const DifferentLayers layers(random, dim);
        const std::int64_t rows = DifferentLayers::kRows;
        for (TestBackend& backend : backends()) {
            const auto values =
                layers.values(layers.run(backend, rows, kOff), DifferentLayers::kDifferent, kOff);
            const auto want = layers.run(backend, 2, kOff);
            const auto got =
                run_delta_replay(backend, "off", layers.layer, values, rows, {.told = 2});
            for (std::size_t i = 0; i < got.size(); ++i) {
                expect_same_output(backend.name + ", layer " + std::to_string(i), got[i],
                                   want[i].state);
            }
        }
    }
}

// The value heads of `layer` (in grouped order) as GGUF files order them: head g*r + i of the
// checkpoint is head i*Hk + g of the file, r = Hv / Hk.
DeltaNetLayer tiled(const DeltaNetLayer& layer) {
    const op::DeltaShape& shape = layer.shape;
    const int repeat = shape.value_heads / shape.key_heads;
    std::vector<std::int64_t> from;  // from[j]: the grouped head that is tiled head j
    for (int i = 0; i < repeat; ++i) {
        for (int g = 0; g < shape.key_heads; ++g) from.push_back(g * repeat + i);
    }
    // Blocks of n values each, those after `skip`, in the new order.
    const auto permute = [&](std::vector<float> values, std::int64_t skip, std::int64_t n) {
        const std::vector<float> old = values;
        for (std::size_t j = 0; j < from.size(); ++j) {
            std::copy_n(old.begin() + skip + from[j] * n, n,
                        values.begin() + skip + static_cast<std::int64_t>(j) * n);
        }
        return values;
    };
    const auto permute_rows = [&](const TestWeight& weight, std::int64_t skip, std::int64_t n) {
        return make_weight(weight.type, weight.rows, weight.cols,
                           permute(weight.values, skip * weight.cols, n * weight.cols));
    };
    const std::int64_t dv = shape.value_dim;
    const std::int64_t keys = 2 * shape.key_heads * shape.key_dim;
    DeltaNetLayer result = layer;
    result.order = op::HeadOrder::tiled;
    result.qkv = permute_rows(layer.qkv, keys, dv);
    result.gate = permute_rows(layer.gate, 0, dv);
    result.beta = permute_rows(layer.beta, 0, 1);
    result.alpha = permute_rows(layer.alpha, 0, 1);
    result.conv = permute(layer.conv, keys * shape.kernel, dv * shape.kernel);
    result.decay_rate = permute(layer.decay_rate, 0, 1);
    result.decay_bias = permute(layer.decay_bias, 0, 1);
    std::vector<float> out;
    for (std::int64_t r = 0; r < layer.out.rows; ++r) {
        append(out, permute(slice(layer.out.values, r, 1, layer.out.cols), 0, dv));
    }
    result.out = make_weight(layer.out.type, layer.out.rows, layer.out.cols, out);
    return result;
}

TEST(DeltaNet, weights_permuted_to_tiled_head_order_give_the_same_y) {
    Random random("delta_net head order");
    // Heads of 32 values keep the blocks of every format whole when they move.
    const op::DeltaShape shape{
        .key_heads = 2, .value_heads = 6, .key_dim = 8, .value_dim = 32, .kernel = 4};
    auto grouped = random_delta_net(random, Types::mixed(), shape, kWidth);
    grouped.order = op::HeadOrder::grouped;
    const auto permuted = tiled(grouped);
    const auto x = random.floats(9 * kWidth, -2, 2);
    for (TestBackend& backend : backends()) {
        const auto a = run_delta_net(backend, "grouped", grouped, zero_delta_state(grouped), x);
        const auto b = run_delta_net(backend, "tiled", permuted, zero_delta_state(permuted), x);
        expect_close(backend.name, b.y, a.y, kWidth, Tolerance::recurrence());
        // Permuted weights read in the wrong order are another model.
        auto wrong = permuted;
        wrong.order = op::HeadOrder::grouped;
        const auto c = run_delta_net(backend, "wrong", wrong, zero_delta_state(wrong), x);
        expect_far(backend.name, c.y, rows_of(a.y, kWidth), Tolerance::recurrence());
    }
}

}  // namespace
}  // namespace strata::test
