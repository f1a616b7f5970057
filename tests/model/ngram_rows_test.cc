// Rows of the n-gram table, against the published constants and the rule written out.

#include "model/ngram_rows.h"

#include <gtest/gtest.h>

#include <optional>

#include "synth/synth.h"
#include "tests/support/random.h"

namespace strata::test {
namespace {

using Rows = std::vector<std::int64_t>;

model::NgramConfig full_model() {
    auto config = synth::preset("flash-next");
    EXPECT_TRUE(config.ok());
    return config->ngram;
}

TEST(NgramRows, the_full_models_constants_are_the_published_ones) {
    const model::NgramConfig ngram = full_model();
    EXPECT_EQ(ngram.multipliers,
              (std::vector<std::uint64_t>{23703573157769, 20109073645365, 8052911324071}));
    EXPECT_EQ(ngram.vocabulary.front(), 20000003u);
    EXPECT_EQ(ngram.vocabulary.back(), 20000171u);
    EXPECT_EQ(ngram.offsets.back(), 300001275u);
}

TEST(NgramRows, a_first_token_reads_the_published_rows) {
    Rows rows;
    const std::int32_t token = 9707;
    model::ngram_rows(full_model(), {}, std::span(&token, 1), rows);
    EXPECT_EQ(rows, (Rows{16410909, 39682429, 55103279, 60931720, 87006904, 116506179, 131512017,
                          152932897, 169641436, 182022480, 209277433, 237891023, 256841529,
                          277007269, 290665954, 300984276}));
}

TEST(NgramRows, a_third_token_reads_the_published_rows) {
    Rows rows;
    const std::vector<std::int32_t> before = {1, 2};
    const std::int32_t token = 3;
    model::ngram_rows(full_model(), before, std::span(&token, 1), rows);
    EXPECT_EQ(rows, (Rows{14605717, 24410875, 49313567, 72177428, 86060820, 104022010, 130963819,
                          146886202, 161523077, 195939126, 219424565, 220811782, 248020141,
                          275228530, 284297999, 309645223}));
}

// The rule as the page words it: walk back; the first predecessor that is missing or the end token
// turns itself and all further ones into end tokens.
Rows by_the_rule(const model::NgramConfig& ngram, const std::vector<std::int32_t>& text) {
    Rows rows;
    for (std::size_t p = 0; p < text.size(); ++p) {
        std::vector<std::uint64_t> window = {static_cast<std::uint64_t>(text[p])};
        bool blank = false;
        for (std::size_t s = 1; s < static_cast<std::size_t>(ngram.size); ++s) {
            const std::optional<std::int32_t> token =
                s <= p ? std::optional(text[p - s]) : std::nullopt;
            if (!token || *token == ngram.end_token) blank = true;
            window.push_back(static_cast<std::uint64_t>(blank ? ngram.end_token : *token));
        }
        for (int n = 2; n <= ngram.size; ++n) {
            std::uint64_t hash = 0;
            for (int i = 0; i < n; ++i) {
                hash ^= window[static_cast<std::size_t>(i)] *
                        ngram.multipliers[static_cast<std::size_t>(i)];
            }
            for (int h = 0; h < ngram.heads_per_ngram; ++h) {
                const auto head = static_cast<std::size_t>((n - 2) * ngram.heads_per_ngram + h);
                rows.push_back(
                    static_cast<std::int64_t>(hash % ngram.vocabulary[head] + ngram.offsets[head]));
            }
        }
    }
    return rows;
}

TEST(NgramRows, end_tokens_cut_at_every_distance_and_the_cut_into_steps_does_not_show) {
    for (const int size : {2, 3, 4}) {
        auto config = synth::preset("tiny");
        ASSERT_TRUE(config.ok());
        config->ngram.size = size;
        config->ngram.heads_per_ngram = 3;
        ASSERT_TRUE(synth::set_ngram_hash(*config, 101).ok());
        const model::NgramConfig& ngram = config->ngram;
        Random random("cuts");
        std::vector<std::int32_t> text;
        for (int i = 0; i < 400; ++i) {
            const bool end = random.integer(0, 3) == 0;
            text.push_back(
                static_cast<std::int32_t>(end ? ngram.end_token : random.integer(0, 330)));
        }
        const Rows want = by_the_rule(ngram, text);
        for (const std::size_t step : {std::size_t{1}, std::size_t{2}, std::size_t{7}}) {
            Rows got;
            Rows part;
            for (std::size_t at = 0; at < text.size(); at += step) {
                const auto count = std::min(step, text.size() - at);
                const std::span<const std::int32_t> all(text);
                model::ngram_rows(ngram, all.first(at), all.subspan(at, count), part);
                got.insert(got.end(), part.begin(), part.end());
            }
            EXPECT_EQ(got, want) << size << "-grams in steps of " << step;
        }
    }
}

}  // namespace
}  // namespace strata::test
