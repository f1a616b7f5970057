// op/draw.h on every backend in the build, against its float64 oracle.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/philox.h"
#include "tests/op/oracle/draw.h"
#include "tests/support/rig.h"

namespace strata::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Case {
    std::vector<float> logits;
    std::int64_t width = 0;
    op::DrawRule rule;
    std::vector<op::Penalized> penalized;
    std::vector<std::int64_t> token_of_row;
    std::int64_t listed = op::kDrawnMax;

    int filters() const {
        return (rule.top_k > 0 ? op::kFilterTopK : 0) | (rule.top_p < 1 ? op::kFilterTopP : 0);
    }
};

std::vector<op::Drawn> run_draw(TestBackend& backend, const Case& of) {
    Rig rig(backend, "draw");
    op::DrawRule rule = of.rule;
    rule.penalized = std::ssize(of.penalized);
    op::Draw args;
    args.logits = rig.input("logits", of.logits, of.width);
    if (!of.token_of_row.empty()) {
        args.token_of_row = {rig.input("token_of_row", of.token_of_row), of.width};
    }
    args.rule = rig.input("rule", std::vector{rule});
    args.penalized = {rig.input("penalized", of.penalized), std::ssize(of.penalized)};
    args.filters = of.filters();
    // Poison is token -1, which stands where there are fewer.
    const std::int64_t count = args.logits.rows * (1 + of.listed);
    const std::vector<op::Drawn> none(static_cast<std::size_t>(count), {7, 7, 7, 7, 7});
    args.drawn = rig.state("drawn", none, 1 + of.listed);
    rig.ops().draw(args, rig.queue());
    rig.finish();
    return rig.read(args.drawn.data);
}

// Whether a filter may end at row r as far as F32 tells: other rows are as deep, or the sum before
// it is as much as top-p wants.
bool is_on_edge(const Case& of, const DrawnRow& want, std::size_t r) {
    const auto depth = static_cast<float>(want.scaled[r]);
    const auto as_deep = [&](double scaled) { return static_cast<float>(scaled) == depth; };
    return std::count_if(want.scaled.begin(), want.scaled.end(), as_deep) > 1 ||
           std::fabs(want.before[r] - of.rule.top_p) < op::kFilterError * of.rule.top_p;
}

// Exact but for scores, and the order of those that are as near as scores tell.
void check_row(const Case& of, const DrawnRow& want, std::int64_t t, const float* logits,
               const op::Drawn* got, const std::string& label) {
    const auto row_of = [&](std::int32_t token) {
        if (of.token_of_row.empty()) return static_cast<std::size_t>(token);
        const auto& tokens = of.token_of_row;
        return static_cast<std::size_t>(std::lower_bound(tokens.begin(), tokens.end(), token) -
                                        tokens.begin());
    };
    const auto check_one = [&](const op::Drawn& one, std::size_t r) {
        ASSERT_LT(r, want.counts.size()) << label;
        EXPECT_EQ(one.count, std::max(want.counts[r], 0)) << label;
        EXPECT_EQ(one.logit, logits[r]) << label;
    };
    if (want.largest < 0) {
        for (std::int64_t i = 0; i <= of.listed; ++i) EXPECT_EQ(got[i].token, -1) << label;
        return;
    }
    ASSERT_GE(got[0].token, 0) << label;
    EXPECT_EQ(row_of(got[0].token), static_cast<std::size_t>(want.largest)) << label;
    EXPECT_EQ(got[0].score, 0) << label;
    check_one(got[0], row_of(got[0].token));
    // Of what may be kept as far as is told, that is kept or not.
    Row scores_of = want.scores;
    for (std::int64_t i = 1; i <= of.listed && of.rule.temperature > 0; ++i) {
        if (got[i].token < 0) continue;
        const std::size_t r = row_of(got[i].token);
        ASSERT_LT(r, scores_of.size()) << label;
        if (got[i].sure == 1) {
            EXPECT_FALSE(std::isnan(want.scores[r])) << label << ' ' << i;
        } else if (std::isnan(scores_of[r])) {
            EXPECT_TRUE(is_on_edge(of, want, r)) << label << ' ' << i;
            scores_of[r] = want.scaled[r] + gumbel(of.rule.seed,
                                                   static_cast<std::uint64_t>(of.rule.position + t),
                                                   static_cast<std::uint32_t>(got[i].token));
        } else {
            EXPECT_TRUE(is_on_edge(of, want, r)) << label << ' ' << i;
        }
    }
    std::vector<double> scores;
    for (const double score : scores_of) {
        if (!std::isnan(score)) scores.push_back(score);
    }
    std::sort(scores.begin(), scores.end(), std::greater<>());
    for (std::int64_t i = 0; i < of.listed; ++i) {
        const op::Drawn& one = got[1 + i];
        if (i >= std::ssize(scores)) {
            EXPECT_EQ(one.token, -1) << label << ' ' << i;
            continue;
        }
        ASSERT_GE(one.token, 0) << label << ' ' << i;
        const std::size_t r = row_of(one.token);
        check_one(one, r);
        // The score is that of the token, and that of the place.
        EXPECT_NEAR(one.score, scores_of[r], op::score_error(scores_of[r])) << label;
        const double wanted = scores[static_cast<std::size_t>(i)];
        EXPECT_NEAR(one.score, wanted, op::score_error(wanted)) << label;
        if (i > 0) {
            EXPECT_LE(one.score, got[i].score) << label;
        }
    }
}

void check_draw(const Case& of, const std::string& name) {
    const std::int64_t rows = std::ssize(of.logits) / of.width;
    for (TestBackend& backend : backends()) {
        const auto got = run_draw(backend, of);
        for (std::int64_t t = 0; t < rows; ++t) {
            const std::vector<float> row = slice(of.logits, t, 1, of.width);
            check_row(of, draw_oracle(row, of.token_of_row, of.rule, of.penalized, t), t,
                      row.data(), got.data() + t * (1 + of.listed),
                      backend.name + ", " + name + ", row " + std::to_string(t));
        }
    }
}

Case some_case(Random& random, std::int64_t width, std::int64_t rows, float spread = 6) {
    Case made;
    made.width = width;
    made.logits = random.floats(rows * width, -spread, spread);
    made.rule.temperature = 0.8;
    made.rule.seed = 0x123456789abcdef;
    made.rule.position = (std::int64_t{1} << 32) - 2;  // where the upper half begins to count
    return made;
}

// Penalties on a tenth of the tokens, those of a window among them.
void add_penalties(Random& random, Case& to) {
    to.rule.repeat_penalty = 1.3;
    to.rule.presence_penalty = 0.7;
    to.rule.frequency_penalty = 0.45;
    const auto some = [&] { return static_cast<std::int32_t>(random.integer(0, to.width - 1)); };
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(to.width));
    std::iota(tokens.begin(), tokens.end(), 0);
    random.shuffle(tokens);
    tokens.resize((tokens.size() + 9) / 10);
    for (const std::int32_t token : tokens) {
        to.penalized.push_back({token, static_cast<std::int32_t>(random.integer(0, 3))});
    }
    for (int i = 0; i < op::kDrawRowsMax; ++i) {
        to.rule.joins[i] = tokens[static_cast<std::size_t>(i) % tokens.size()];
        to.rule.leaves[i] = i % 3 == 0 ? -1 : some();
    }
}

TEST(Draw, lists_the_tokens_of_largest_logit_and_noise) {
    Random random("draw");
    // On both sides of what a block of threads takes.
    for (const std::int64_t width : {1, 5, 4095, 4096, 4097, 8200}) {
        for (const std::int64_t rows : {1, 2}) {
            Case of = some_case(random, width, rows);
            of.listed = width % 2 == 0 ? 3 : op::kDrawnMax;
            check_draw(of, "N=" + std::to_string(width));
            add_penalties(random, of);
            check_draw(of, "penalized N=" + std::to_string(width));
        }
    }
}

TEST(Draw, keeps_what_is_not_below_the_lowest) {
    Random random("draw lowest");
    for (const double p : {1.0, 0.3, 0.02}) {
        Case of = some_case(random, 4100, 2);
        of.rule.lowest = std::log(p);
        of.logits[17] = of.logits[4099] = 6.5f;  // equal and the largest
        check_draw(of, "min-p " + std::to_string(p));
        add_penalties(random, of);
        check_draw(of, "penalized, min-p " + std::to_string(p));
    }
}

TEST(Draw, keeps_what_top_k_and_top_p_keep) {
    Random random("draw filters");
    struct Kept {
        std::int64_t top_k;
        double top_p;
    };
    for (const auto& [top_k, top_p] :
         {Kept{1, 1}, Kept{70, 1}, Kept{700, 1}, Kept{99999, 1}, Kept{0, 0}, Kept{0, 0.5},
          Kept{0, 0.999}, Kept{0, 0.999999}, Kept{100, 0.8}, Kept{5, 0.1}}) {
        const std::string name = std::to_string(top_k) + ", " + std::to_string(top_p);
        // Several blocks of threads where both filters count.
        Case of = some_case(random, top_k > 0 && top_p < 1 ? 4100 : 700, 2);
        of.rule.top_k = top_k;
        of.rule.top_p = top_p;
        check_draw(of, name);
        add_penalties(random, of);
        of.rule.lowest = -4;
        check_draw(of, "penalized, " + name);
        // Ties at both ends.
        for (float& logit : of.logits) logit = std::round(logit);
        check_draw(of, "rounded, " + name);
    }
}

// A list of one is sure to be it wherever nothing is as deep.
TEST(Draw, is_sure_of_what_filters_keep_where_no_two_are_as_deep) {
    Random random("draw sure");
    Case of = some_case(random, 300, 8);
    of.rule.top_k = 100;
    of.rule.top_p = 0.9;
    for (TestBackend& backend : backends()) {
        for (const op::Drawn& one : run_draw(backend, of)) EXPECT_EQ(one.sure, 1) << backend.name;
    }
}

TEST(Draw, at_temperature_0_says_which_penalized_logit_is_largest) {
    Random random("draw largest");
    Case of = some_case(random, 4100, 3);
    add_penalties(random, of);
    of.rule.temperature = 0;
    check_draw(of, "greedy");
    of.listed = 0;
    check_draw(of, "greedy without a list");
    // A bonus lifts one from below.
    of.rule.presence_penalty = -20;
    check_draw(of, "lifted");
}

TEST(Draw, extreme_temperatures_and_logits_do_not_overflow) {
    Random random("draw extreme");
    for (const double temperature : {1e-8, 1e-3, 1e6}) {
        Case of = some_case(random, 4200, 1);
        of.rule.temperature = temperature;
        check_draw(of, "temperature " + std::to_string(temperature));
    }
    Case of = some_case(random, 4200, 1);
    of.logits[4111] = 3e38f;
    of.logits[4112] = -3e38f;
    check_draw(of, "all on one");
    for (std::size_t i = 0; i < 4190; ++i) of.logits[i] = -kInfinity;
    check_draw(of, "few finite");
}

TEST(Draw, of_rows_without_a_number_is_nothing) {
    Random random("draw broken");
    Case of = some_case(random, 4200, 5);
    of.logits[4150] = std::nanf("");
    of.logits[4200 + 3] = kInfinity;
    for (std::size_t i = 8400; i < 12600; ++i) of.logits[i] = -kInfinity;
    for (std::size_t i = 12600; i < 16800; ++i) of.logits[i] = std::nanf("");
    check_draw(of, "broken");
}

TEST(Draw, with_a_list_of_tokens_has_their_noise_and_their_penalties) {
    Random random("draw tokens");
    Case of = some_case(random, 4500, 2);
    add_penalties(random, of);
    for (std::int64_t r = 0; r < of.width; ++r) of.token_of_row.push_back(2 * r + 1);
    check_draw(of, "tokens");
}

void expect_same(const op::Drawn& got, const op::Drawn& want, const std::string& label) {
    EXPECT_EQ(got.token, want.token) << label;
    EXPECT_EQ(got.count, want.count) << label;
    EXPECT_EQ(got.logit, want.logit) << label;
    EXPECT_EQ(got.score, want.score) << label;
    EXPECT_EQ(got.sure, want.sure) << label;
}

void expect_rows_alone(const Case& of, const std::string& name) {
    for (TestBackend& backend : backends()) {
        const auto together = run_draw(backend, of);
        Case alone = of;
        for (std::int64_t t = 0; t < op::kDrawRowsMax; ++t) {
            alone.logits = slice(of.logits, t, 1, of.width);
            const auto got = run_draw(backend, alone);
            for (std::int64_t i = 0; i <= of.listed; ++i) {
                expect_same(got[static_cast<std::size_t>(i)],
                            together[static_cast<std::size_t>(t * (1 + of.listed) + i)],
                            backend.name + name + std::to_string(t));
            }
            // What the next row is told of.
            ++alone.rule.position;
            for (op::Penalized& one : alone.penalized) {
                if (one.token == of.rule.joins[t]) ++one.count;
                if (one.token == of.rule.leaves[t]) --one.count;
            }
        }
    }
}

TEST(Draw, each_row_is_bit_identical_to_that_row_alone) {
    Random random("draw alone");
    Case of = some_case(random, 4300, op::kDrawRowsMax);
    add_penalties(random, of);
    expect_rows_alone(of, ", all, ");
    // With ties, so that not all that is listed is sure.
    for (float& logit : of.logits) logit = std::round(logit);
    of.rule.top_k = 700;
    of.rule.top_p = 0.9;
    expect_rows_alone(of, ", filtered, ");
}

}  // namespace
}  // namespace strata::test
