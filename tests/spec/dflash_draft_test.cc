// What a DFlash2 draft guesses, against the references' answers and against itself.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "tests/spec/draft_case.h"

namespace strata::test {
namespace {

// Absolute, of scores around 10: F32 sums, and features and cells of 11 bits.
constexpr double kFloatError = 1e-4;
constexpr double kHalfError = 1e-2;
constexpr std::int64_t kLengths[] = {1, 10, 60, 97};

class DflashDraft : public testing::TestWithParam<const char*> {
  protected:
    dflash::Context context(op::CacheType cache = op::CacheType::f32, std::int64_t room = 200) {
        auto made = drafter_->make_context({room, cache});
        EXPECT_TRUE(made.ok());
        return std::move(made).value();
    }
    void inject(dflash::Context& context, std::int64_t first, std::int64_t rows) {
        const auto& config = drafter_->config();
        auto features = golden_.features(config, first + rows);
        const std::int64_t width = config.feature_width();
        drafter_->inject(context, first, {features.data() + first * width, rows, width});
    }
    dflash::DraftRequest request(std::int64_t length) const {
        const std::string key = "draft." + std::to_string(length);
        return {length, golden_.golden().ints(key + ".anchor")[0],
                golden_.golden().ints(key + ".rows")[0], 0};
    }
    dflash::Guess draft(dflash::Context& context, const dflash::DraftRequest& request) {
        auto guess = drafter_->draft(context, request);
        EXPECT_TRUE(guess.ok()) << (guess.ok() ? "" : guess.error().message);
        return std::move(guess).value();
    }
    dflash::Guess draft(std::int64_t length) {
        dflash::Context fresh = context();
        inject(fresh, 0, length);
        return draft(fresh, request(length));
    }

    GoldenDraft& golden_ = GoldenDraft::of(GetParam());
    std::unique_ptr<dflash::BlockModel> drafter_ = golden_.drafter();
};

template <typename T>
std::vector<T> copy(std::span<const T> values) {
    return {values.begin(), values.end()};
}

void expect_near(const std::string& what, const std::vector<float>& got,
                 std::span<const float> want, double error) {
    ASSERT_EQ(got.size(), want.size()) << what;
    for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], error) << what << ", " << i;
    }
}

void expect_same(const std::string& what, const dflash::Guess& got, const dflash::Guess& want) {
    EXPECT_EQ(got.path, want.path) << what;
    EXPECT_EQ(got.confidence, want.confidence) << what;
    EXPECT_EQ(got.candidates, want.candidates) << what;
    EXPECT_EQ(got.scores, want.scores) << what;
}

TEST_P(DflashDraft, drafts_are_the_references) {
    for (const std::int64_t length : kLengths) {
        const std::string key = "draft." + std::to_string(length) + ".";
        const Golden& golden = golden_.golden();
        const dflash::Guess guess = draft(length);
        EXPECT_EQ(guess.path, copy(golden.ints(key + "path"))) << length;
        EXPECT_EQ(guess.candidates, copy(golden.ints(key + "candidates"))) << length;
        expect_near(key + "confidence", guess.confidence, golden.floats(key + "confidence"),
                    kFloatError);
        expect_near(key + "scores", guess.scores, golden.floats(key + "scores"), kFloatError);
    }
}

TEST_P(DflashDraft, cells_of_11_bits_give_the_references_path) {
    for (const std::int64_t length : kLengths) {
        const std::string key = "draft." + std::to_string(length) + ".";
        dflash::Context halves = context(op::CacheType::f16);
        inject(halves, 0, length);
        const dflash::Guess guess = draft(halves, request(length));
        EXPECT_EQ(guess.path, copy(golden_.golden().ints(key + "path"))) << length;
        expect_near(key + "confidence", guess.confidence,
                    golden_.golden().floats(key + "confidence"), kHalfError);
    }
}

TEST_P(DflashDraft, guesses_do_not_depend_on_how_the_rows_came) {
    const dflash::Guess want = draft(97);
    for (const std::int64_t rows : {1, 7, 33, 96}) {
        dflash::Context pieces = context();
        for (std::int64_t first = 0; first < 97; first += rows) {
            inject(pieces, first, std::min(rows, 97 - first));
        }
        expect_same("in pieces of " + std::to_string(rows), draft(pieces, request(97)), want);
    }
    // More rows at once than the drafter takes.
    drafter_ = golden_.drafter(golden_.draft_path(), 3);
    expect_same("three rows at a time", draft(97), want);
}

TEST_P(DflashDraft, rows_before_the_window_are_not_missed) {
    const std::int64_t window = drafter_->config().window;
    dflash::Context late = context();
    const std::int64_t first = 97 - window + 1;
    inject(late, first, 97 - first);
    expect_same("from the window on", draft(late, request(97)), draft(97));
    dflash::Context later = context();
    inject(later, first + 1, 97 - first - 1);
    EXPECT_NE(draft(later, request(97)).scores, draft(97).scores) << "the last row is needed";
}

// SPEC-07: of the fewest positions that hold the text, and around sizes that a cache could be
// rounded up to.
TEST_P(DflashDraft, guesses_do_not_depend_on_the_contexts_size) {
    const dflash::Guess want = draft(97);
    for (const std::int64_t room : {97, 104, 127, 128, 129, 255, 256, 257, 2047, 2048, 2049}) {
        dflash::Context sized = context(op::CacheType::f32, room);
        inject(sized, 0, 97);
        expect_same("of " + std::to_string(room), draft(sized, request(97)), want);
    }
}

TEST_P(DflashDraft, refused_guesses_and_going_back_leave_no_trace) {
    const dflash::Guess want = draft(60);
    dflash::Context context = this->context();
    inject(context, 0, 60);
    draft(context, request(60));
    expect_same("after a draft", draft(context, request(60)), want);
    // As far as the ring's slack reaches, the window is still whole.
    inject(context, 60, dflash::kRingSlack);
    expect_same("after rows of later positions", draft(context, request(60)), want);
    drafter_->truncate(context, 60);
    expect_same("after going back", draft(context, request(60)), want);
    inject(context, 60, 37);
    drafter_->truncate(context, 0);
    inject(context, 0, 60);
    expect_same("after starting anew", draft(context, request(60)), want);
}

TEST_P(DflashDraft, a_saved_context_drafts_as_the_one_that_it_was) {
    for (const op::CacheType cache : {op::CacheType::f16, op::CacheType::q8_0}) {
        dflash::Context context = this->context(cache);
        inject(context, 0, 97);
        const dflash::Guess want = draft(context, request(97));
        const std::string saved = drafter_->save(context);
        dflash::Context other = this->context(cache);
        inject(other, 0, 10);
        ASSERT_TRUE(drafter_->restore(other, saved).ok());
        expect_same("restored", draft(other, request(97)), want);
        EXPECT_EQ(drafter_->save(other), saved);
        auto larger = drafter_->make_context({20, cache});
        ASSERT_TRUE(larger.ok());
        EXPECT_FALSE(drafter_->restore(*larger, saved).ok());
        EXPECT_FALSE(drafter_->restore(other, std::string_view(saved).substr(1)).ok());
    }
}

TEST_P(DflashDraft, a_draft_ends_before_the_first_guess_below_the_floor) {
    const dflash::Guess whole = draft(60);
    dflash::Context context = this->context();
    inject(context, 0, 60);
    for (const float floor : whole.confidence) {
        dflash::DraftRequest cut = request(60);
        cut.confidence_min = floor;
        std::size_t kept = 0;
        while (kept < whole.path.size() && whole.confidence[kept] >= floor) ++kept;
        const dflash::Guess guess = draft(context, cut);
        EXPECT_EQ(guess.path.size(), kept);
        EXPECT_EQ(guess.scores.size(), kept * static_cast<std::size_t>(guess.width));
    }
    dflash::DraftRequest none = request(60);
    none.confidence_min = 1.5f;
    EXPECT_TRUE(draft(context, none).path.empty());
}

TEST_P(DflashDraft, fewer_rows_are_a_smaller_block_and_not_a_crop) {
    dflash::Context context = this->context();
    inject(context, 0, 97);
    dflash::DraftRequest fewer = request(97);
    fewer.rows = 3;
    const dflash::Guess guess = draft(context, fewer);
    EXPECT_EQ(guess.path.size(), 2U);
    EXPECT_NE(guess.scores[0], draft(context, request(97)).scores[0]);
}

TEST_P(DflashDraft, features_that_are_not_finite_are_counted_and_taken_as_zero) {
    const std::int64_t width = drafter_->config().feature_width();
    auto features = golden_.features(drafter_->config(), 10);
    features[static_cast<std::size_t>(3 * width)] = std::numeric_limits<float>::infinity();
    dflash::Context broken = context();
    drafter_->inject(broken, 0, {features.data(), 10, width});
    EXPECT_EQ(drafter_->features_replaced(), 1);
    features[static_cast<std::size_t>(3 * width)] = 0;
    dflash::Context zeroed = context();
    drafter_->inject(zeroed, 0, {features.data(), 10, width});
    EXPECT_EQ(drafter_->features_replaced(), 1);
    expect_same("infinity", draft(broken, request(10)), draft(zeroed, request(10)));
}

TEST_P(DflashDraft, what_cannot_be_drafted_is_an_error) {
    dflash::Context context = this->context();
    inject(context, 0, 10);
    const auto refused = [&](const dflash::DraftRequest& wrong, const std::string& part) {
        const auto guess = drafter_->draft(context, wrong);
        ASSERT_FALSE(guess.ok());
        EXPECT_NE(guess.error().message.find(part), std::string::npos) << guess.error().message;
    };
    dflash::DraftRequest wrong = request(10);
    wrong.anchor = static_cast<std::int32_t>(drafter_->config().vocabulary);
    refused(wrong, "outside the vocabulary");
    wrong.anchor = -1;
    refused(wrong, "outside the vocabulary");
    wrong = request(10);
    wrong.rows = drafter_->config().block_size + 1;
    refused(wrong, "rows was asked for, wanted 2 to");
    wrong.rows = 1;
    refused(wrong, "rows was asked for, wanted 2 to");
}

INSTANTIATE_TEST_SUITE_P(Golden, DflashDraft, testing::Values("tiny", "odd"),
                         [](const auto& one) { return std::string(one.param); });

// A tensor of the target's file, under a draft's name.
DraftFile::Tensor of_target(GoldenDraft& golden, const std::string& name) {
    return DraftFile::load(golden.target_path()).at(name);
}

std::string bytes_of(const std::vector<std::int64_t>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])};
}

dflash::Guess draft_60(GoldenDraft& golden, dflash::BlockModel& drafter) {
    auto features = golden.features(drafter.config(), 60);
    auto context = drafter.make_context({100, op::CacheType::f32});
    drafter.inject(*context, 0, {features.data(), 60, drafter.config().feature_width()});
    return std::move(drafter.draft(*context, {60, golden.golden().ints("draft.60.anchor")[0],
                                              golden.golden().ints("draft.60.rows")[0], 0}))
        .value();
}

TEST(DflashHead, a_draft_with_the_targets_own_embedding_and_head_drafts_the_same) {
    GoldenDraft& golden = GoldenDraft::of("tiny");
    const dflash::Guess want = draft_60(golden, *golden.drafter());
    std::vector<std::int64_t> all(1024);
    std::iota(all.begin(), all.end(), 0);
    for (const bool mapped : {false, true}) {
        auto drafter = golden.changed([&](DraftFile& file) {
            file.tensors.push_back(of_target(golden, "token_embd.weight"));
            file.tensors.push_back(of_target(golden, "output.weight"));
            if (mapped) {
                file.tensors.push_back({"d2t", quant::Type::i64, {1024}, bytes_of(all)});
            }
        });
        ASSERT_TRUE(drafter.ok()) << drafter.error().message;
        expect_same("own head", draft_60(golden, **drafter), want);
    }
}

// The head's rows of `tokens` alone.
void keep_rows(GoldenDraft& golden, DraftFile& file, const std::vector<std::int64_t>& tokens) {
    DraftFile::Tensor head = of_target(golden, "output.weight");
    const std::size_t row = head.bytes.size() / head.shape[1];
    std::string kept;
    for (const std::int64_t token : tokens) {
        kept += head.bytes.substr(static_cast<std::size_t>(token) * row, row);
    }
    head.bytes = kept;
    head.shape[1] = tokens.size();
    file.tensors.push_back(std::move(head));
    file.tensors.push_back({"d2t", quant::Type::i64, {tokens.size()}, bytes_of(tokens)});
}

// SPEC-25
TEST(DflashHead, a_draft_vocabulary_guesses_its_own_tokens_alone) {
    GoldenDraft& golden = GoldenDraft::of("tiny");
    const dflash::Guess whole = draft_60(golden, *golden.drafter());
    // Every other token, and what the whole vocabulary would have had in its first row.
    std::set<std::int64_t> some;
    for (std::int64_t token = 1; token < 1024; token += 2) some.insert(token);
    for (std::int64_t c = 0; c < whole.width; ++c) {
        some.insert(whole.candidates[static_cast<std::size_t>(c)]);
    }
    const std::vector<std::int64_t> tokens(some.begin(), some.end());
    auto drafter = golden.changed([&](DraftFile& file) { keep_rows(golden, file, tokens); });
    ASSERT_TRUE(drafter.ok()) << drafter.error().message;
    const dflash::Guess guess = draft_60(golden, **drafter);
    for (const std::int32_t token : guess.candidates) EXPECT_TRUE(some.contains(token)) << token;
    for (std::size_t c = 0; c < static_cast<std::size_t>(whole.width); ++c) {
        EXPECT_EQ(guess.candidates[c], whole.candidates[c]);
        EXPECT_EQ(guess.scores[c], whole.scores[c]);
    }
}

// SPEC-25
TEST(DflashHead, a_map_that_is_none_is_refused) {
    GoldenDraft& golden = GoldenDraft::of("tiny");
    const auto refused = [&](const std::function<void(DraftFile&)>& change,
                             const std::string& part) {
        const auto drafter = golden.changed(change);
        ASSERT_FALSE(drafter.ok());
        EXPECT_NE(drafter.error().message.find(part), std::string::npos) << drafter.error().message;
    };
    std::vector<std::int64_t> tokens(40);
    std::iota(tokens.begin(), tokens.end(), 0);
    const auto with = [&](std::vector<std::int64_t> map) {
        return [&golden, map](DraftFile& file) {
            std::vector<std::int64_t> rows(map.size());
            std::iota(rows.begin(), rows.end(), 0);
            keep_rows(golden, file, rows);
            file.at("d2t").bytes = bytes_of(map);
        };
    };
    auto twice = tokens;
    twice[7] = twice[6];
    refused(with(twice), "'d2t' holds 6 after 6, wanted ascending");
    auto outside = tokens;
    outside.back() = 1024;
    refused(with(outside), "'d2t' holds 1024");
    refused(with({0, 1, 2}), "'d2t' has 3 tokens, wanted at least 8");
    refused(
        [&](DraftFile& file) {
            keep_rows(golden, file, tokens);
            file.tensors.pop_back();
        },
        "'output.weight' has 40 rows, wanted the vocabulary of 1024, or a tensor 'd2t'");
    refused(
        [&](DraftFile& file) {
            file.tensors.push_back({"d2t", quant::Type::i64, {40}, bytes_of(tokens)});
        },
        "tensor 'd2t' maps the rows of a head of its own");
}

}  // namespace
}  // namespace strata::test
