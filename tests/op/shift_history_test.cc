// ShiftHistory of op/streams.h on every backend in the build: exactly the rows, and what the ops
// that keep a history leave after fewer rows.

#include <gtest/gtest.h>

#include "tests/op/run/ngram.h"
#include "tests/op/run/sparse_attention.h"
#include "tests/support/everywhere.h"

namespace strata::test {
namespace {

constexpr std::int64_t kToldRows = 4;

// In place.
std::vector<float> run_shift(TestBackend& backend, const std::vector<float>& history,
                             const std::vector<float>& window, std::int64_t cols,
                             std::int64_t rows) {
    Rig rig(backend, "shift_history");
    const auto kept = rig.state("history", history, cols);
    const op::ShiftedHistory one{kept.data, kept, rig.input("window", window, cols)};
    rig.ops().shift_history({.histories = {&one, 1}, .kept = {rows}}, rig.queue());
    rig.finish();
    return rig.read(kept.data);
}

struct HistoryValues {
    std::vector<float> from;
    std::vector<float> before;  // what `to` holds
    std::vector<float> window;
    std::int64_t cols;
};

// Several histories at once by as many rows as memory tells.
std::vector<std::vector<float>> run_told(TestBackend& backend,
                                         const std::vector<HistoryValues>& histories,
                                         std::int64_t told) {
    Rig rig(backend, "shift_history, told");
    std::vector<op::ShiftedHistory> all;
    for (const HistoryValues& one : histories) {
        const std::string of = std::to_string(all.size());
        const auto from = rig.input(("from" + of).c_str(), one.from, one.cols);
        all.push_back({from.data, rig.state(("to" + of).c_str(), one.before, one.cols),
                       rig.input(("window" + of).c_str(), one.window, one.cols)});
    }
    const op::KeptRows kept{kToldRows, rig.input("told", std::vector<std::int64_t>{told})};
    rig.ops().shift_history({.histories = all, .kept = kept}, rig.queue());
    rig.finish();
    std::vector<std::vector<float>> moved;
    for (const op::ShiftedHistory& one : all) moved.push_back(rig.read(one.to.data));
    return moved;
}

TEST(ShiftHistory, keeps_the_last_rows_of_history_and_window) {
    Random random("shift_history");
    for (const std::int64_t cols : {1, 3, 128}) {
        for (const std::int64_t n : {1, 2, 3, 9}) {
            for (const std::int64_t rows : {1, 2, 3, 5, 9, 10, 30}) {
                const auto history = random.floats(n * cols, -1, 1);
                const auto window = random.floats(rows * cols, -1, 1);
                for (std::int64_t m = 1; m <= rows; ++m) {
                    auto all = history;
                    append(all, slice(window, 0, m, cols));
                    for (TestBackend& backend : backends()) {
                        expect_same_bits(
                            backend.name + ", n=" + std::to_string(n) + " m=" + std::to_string(m),
                            run_shift(backend, history, window, cols, m), slice(all, m, n, cols));
                    }
                }
            }
        }
    }
}

// More histories than a launch takes.
TEST(ShiftHistory, of_many_moves_each_by_as_many_rows_as_memory_tells) {
    Random random("shift_history told");
    constexpr std::int64_t kValues = 300;
    std::vector<HistoryValues> histories;
    for (int i = 0; i < 35; ++i) {
        // One column of all values, or one row of them.
        const std::int64_t cols = i % 2 == 0 ? 1 : kValues;
        histories.push_back({random.floats(kValues, -1, 1), random.floats(kValues, -1, 1),
                             random.floats(kToldRows * cols, -1, 1), cols});
    }
    for (TestBackend& backend : backends()) {
        for (std::int64_t told = 1; told <= kToldRows; ++told) {
            const auto moved = run_told(backend, histories, told);
            for (std::size_t i = 0; i < moved.size(); ++i) {
                const HistoryValues& one = histories[i];
                auto all = one.from;
                append(all, slice(one.window, 0, told, one.cols));
                // What all rows leave is taken to be there.
                const auto want =
                    told == kToldRows ? one.before : slice(all, told, kValues / one.cols, one.cols);
                expect_same_bits(
                    backend.name + ", " + std::to_string(i) + " by " + std::to_string(told),
                    moved[i], want);
            }
        }
    }
}

TEST(ShiftHistory, by_m_rows_of_an_ngram_trace_is_the_history_after_m_rows) {
    Random random("shift_history ngram");
    const auto layer = random_ngram_mix(random, Types::mixed(), {});
    const std::int64_t channels = layer.channels();
    NgramMixInput input;
    input.e = random.floats(12 * layer.key.cols, -2, 2);
    input.residual = random.floats(12 * channels, -2, 2);
    input.history = random.floats(layer.history_rows() * channels, -2, 2);
    for (TestBackend& backend : backends()) {
        const auto all = run_ngram_mix(backend, "all", layer, input);
        for (std::int64_t m = 1; m <= 12; ++m) {
            NgramMixInput some = input;
            some.e = slice(input.e, 0, m, layer.key.cols);
            some.residual = slice(input.residual, 0, m, channels);
            expect_same_bits(backend.name + ", m=" + std::to_string(m),
                             run_shift(backend, input.history, all.trace, channels, m),
                             run_ngram_mix(backend, "some", layer, some).history);
        }
    }
}

TEST(ShiftHistory, by_m_raw_rows_is_the_attention_history_after_m_rows) {
    Random random("shift_history attention");
    const op::AttentionShape shape{6, 2, 16, 2, 8, 4, 3, 3};
    const auto layer = random_attention(random, Types::mixed(), shape, 32);
    const auto x = random.floats(16 * 32, -2, 2);
    for (TestBackend& backend : backends()) {
        auto before = empty_attention_state(layer, op::CacheType::f16, 20);
        run_attention(backend, "before", layer, before, slice(x, 0, 7, 32));
        auto state = before;
        const auto all = run_attention(backend, "all", layer, state, slice(x, 7, 9, 32));
        for (std::int64_t m = 1; m <= 9; ++m) {
            state = before;
            run_attention(backend, "some", layer, state, slice(x, 7, m, 32));
            expect_same_bits(backend.name + ", m=" + std::to_string(m),
                             run_shift(backend, before.raw, all.raw_trace, 8, m), state.raw);
        }
    }
}

}  // namespace
}  // namespace strata::test
