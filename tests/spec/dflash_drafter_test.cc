// A DFlash2 draft that goes along with a sequence guesses what a fresh context of the same text
// would have it guess, however the text came to be.

#include "spec/dflash_drafter.h"

#include <gtest/gtest.h>

#include "spec/round.h"
#include "tests/spec/draft_case.h"

namespace strata::test {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kRoom = 160;

class DflashFollows : public testing::TestWithParam<const char*> {
  protected:
    std::unique_ptr<spec::DflashDrafter> drafter() {
        return spec::DflashDrafter::create(*model_, {kRoom, cache_}, 0).value();
    }
    model::Sequence sequence() {
        return golden_.target().make_sequence({kRoom, cache_, false}).value();
    }
    // Reads `tokens` as a prompt, `chunk` of them at a time.
    void read(model::Sequence& sequence, spec::Drafter& drafter, std::span<const std::int32_t> text,
              std::int64_t chunk) {
        const std::int64_t end = sequence.length() + static_cast<std::int64_t>(text.size());
        while (!text.empty()) {
            model::StepRequest request;
            request.tokens = text.first(std::min(static_cast<std::size_t>(chunk), text.size()));
            text = text.subspan(request.tokens.size());
            const auto rows = static_cast<std::int64_t>(request.tokens.size());
            const std::int64_t first = sequence.length();
            drafter.want({first, rows, end}, request);
            const auto result = golden_.target().step(sequence, request).value();
            ASSERT_TRUE(drafter.keep(first, request.tokens, result).ok());
            golden_.target().commit(sequence, rows);
        }
    }
    Tokens guess(spec::Drafter& drafter, const Tokens& text) {
        return drafter.guess({text, 15, nullptr, {}}).value().tokens;
    }
    // What follows `text` by a sequence and a drafter that have seen nothing else.
    Tokens fresh(const Tokens& text) {
        model::Sequence fresh = sequence();
        const auto other = drafter();
        read(fresh, *other, std::span(text).first(text.size() - 1), 32);
        return guess(*other, text);
    }
    static std::int32_t greedy(std::span<const float> row) {
        return static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    }
    // `text` as the target goes on with it, to `length` tokens.
    Tokens future(Tokens text, std::size_t length) {
        model::Sequence sequence = this->sequence();
        while (text.size() < length) {
            const auto done = static_cast<std::size_t>(sequence.length());
            model::StepRequest request;
            request.tokens =
                std::span(text).subspan(done, std::min<std::size_t>(32, text.size() - done));
            const auto rows = static_cast<std::int64_t>(request.tokens.size());
            const auto logits = golden_.target().step(sequence, request).value().logits;
            const bool last = done + request.tokens.size() == text.size();
            golden_.target().commit(sequence, rows);
            if (last) {
                text.push_back(greedy({logits.data, static_cast<std::size_t>(logits.cols)}));
            }
        }
        return text;
    }
    Tokens prompt(std::int64_t length) const {
        const auto ids = golden_.golden().ints("long.ids");
        return {ids.begin(), ids.begin() + length};
    }

    op::CacheType cache_ = op::CacheType::q8_0;
    GoldenDraft& golden_ = GoldenDraft::of(GetParam());
    std::unique_ptr<dflash::BlockModel> model_ = golden_.drafter();
};

// Checks each guess of another drafter against a fresh run, and guesses something else: right
// tokens of a known text, of changing number.
class Checked final : public spec::Drafter {
  public:
    using Fresh = std::function<Tokens(const Tokens&)>;
    Checked(spec::Drafter& inner, Fresh fresh) : inner_(inner), fresh_(std::move(fresh)) {}

    std::string_view name() const override { return "checked"; }
    Result<spec::Guesses> guess(const spec::GuessRequest& request) override {
        const Tokens text(request.text.begin(), request.text.end());
        // Not before every window: what is kept in between must wait for its turn.
        if (++windows_ % 3 != 0) {
            STRATA_ASSIGN(const spec::Guesses inner, inner_.guess({text, 15, nullptr, {}}));
            EXPECT_EQ(inner.tokens, fresh_(text)) << "window " << windows_;
        }
        Tokens guesses;
        for (std::int64_t i = 0; i < std::min(request.count, windows_ % 5); ++i) {
            guesses.push_back(future_[text.size() + static_cast<std::size_t>(i)]);
        }
        if (windows_ % 2 == 0) guesses.push_back(1);
        return spec::Guesses{guesses, {}, 0};
    }
    void want(const spec::StepRows& rows, model::StepRequest& request) override {
        inner_.want(rows, request);
    }
    Status keep(std::int64_t first, std::span<const std::int32_t> tokens,
                const model::StepResult& result) override {
        return inner_.keep(first, tokens, result);
    }
    void expect(Tokens future) { future_ = std::move(future); }

  private:
    spec::Drafter& inner_;
    Fresh fresh_;
    Tokens future_ = Tokens(256, 0);
    std::int64_t windows_ = 0;
};

TEST_P(DflashFollows, prompts_in_any_chunks_give_the_references_drafts) {
    cache_ = op::CacheType::f32;
    for (const std::int64_t length : {1, 10, 60, 97}) {
        const std::string key = "draft." + std::to_string(length) + ".";
        const auto path = golden_.golden().ints(key + "path");
        Tokens text = prompt(length);
        text.push_back(golden_.golden().ints(key + "anchor")[0]);
        for (const std::int64_t chunk : {1, 7, 32}) {
            model::Sequence sequence = this->sequence();
            const auto drafter = this->drafter();
            read(sequence, *drafter, prompt(length), chunk);
            const auto count = static_cast<std::int64_t>(path.size());
            const auto got = drafter->guess({text, count, nullptr, {}}).value();
            EXPECT_EQ(got.tokens, Tokens(path.begin(), path.end())) << length << ' ' << chunk;
        }
    }
}

TEST_P(DflashFollows, features_of_the_next_layers_give_other_drafts) {
    std::vector<std::int32_t> layers;  // counted from 1 in the file
    for (const std::int64_t layer : model_->config().target_layers) {
        layers.push_back(static_cast<std::int32_t>(layer) + 2);
    }
    model_ = golden_
                 .changed([&](DraftFile& file) {
                     file.set("dflash.target_layers", gguf::Value::array(layers));
                 })
                 .value();
    bool differs = false;
    for (const std::int64_t length : {10, 60, 97}) {
        const std::string key = "draft." + std::to_string(length) + ".";
        const auto path = golden_.golden().ints(key + "path");
        Tokens text = prompt(length);
        text.push_back(golden_.golden().ints(key + "anchor")[0]);
        differs = differs || fresh(text) != Tokens(path.begin(), path.end());
    }
    EXPECT_TRUE(differs);
}

TEST_P(DflashFollows, every_draft_of_a_conversation_is_that_of_a_fresh_run) {
    model::Sequence sequence = this->sequence();
    const auto drafter = this->drafter();
    Checked checked(*drafter, [this](const Tokens& text) { return fresh(text); });
    Tokens text = prompt(40);
    std::vector<float> logits;
    // Two turns of windows; after each the drafter is saved, emptied and restored.
    for (const std::size_t end : {std::size_t{60}, std::size_t{84}}) {
        read(sequence, checked, std::span(text).subspan(sequence.tokens().size()), 32);
        text.push_back(static_cast<std::int32_t>(end));
        checked.expect(future(text, end + 20));
        while (text.size() < end) {
            const auto round = spec::run_round(
                {golden_.target(), sequence, &checked, &checked}, text, 9,
                [&](std::span<const float> row) -> Result<bool> {
                    text.push_back(greedy(row));
                    return text.size() >= end;
                },
                logits);
            ASSERT_TRUE(round.ok());
        }
        const std::string saved = drafter->save();
        EXPECT_EQ(guess(*drafter, text), fresh(text));
        drafter->reset();
        drafter->restore(saved);
        EXPECT_EQ(guess(*drafter, text), fresh(text)) << "restored";
        EXPECT_EQ(drafter->save(), saved);
    }
}

TEST_P(DflashFollows, cells_of_another_draft_are_not_taken) {
    model::Sequence sequence = this->sequence();
    const auto drafter = this->drafter();
    read(sequence, *drafter, prompt(40), 32);
    const std::string saved = drafter->save();
    model_ = golden_.changed([](DraftFile& file) { file.at("output_norm.weight").bytes[0] ^= 1; })
                 .value();
    const auto other = this->drafter();
    const std::string empty = other->save();
    other->restore(saved);
    EXPECT_EQ(other->save(), empty);
    other->restore("");
    EXPECT_EQ(other->save(), empty);
}

INSTANTIATE_TEST_SUITE_P(Golden, DflashFollows, testing::Values("tiny", "odd"));

}  // namespace
}  // namespace strata::test
