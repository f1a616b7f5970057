// Drafting through the public interface: the text is the undrafted one, and the counts add up.

#include <gtest/gtest.h>

#include <numeric>

#include "strata/engine.h"
#include "synth/synth.h"
#include "tests/support/temp_dir.h"

namespace strata::test {
namespace {

class Drafted : public ::testing::Test {
  protected:
    Drafted() {
        synth::SynthOptions synth;
        synth.config = synth::preset("tiny").value();
        synth.output = folder_ / "tiny.gguf";
        EXPECT_TRUE(synth::synthesize(synth).ok());
        engine_ = Engine::load({.model = synth.output, .context = 100}).value();
    }

    Completion generate(const Drafting& drafting, const GenerateRequest& request) {
        Session session = engine_->make_session(0, drafting).value();
        return session.generate(request).value();
    }

    GenerateRequest request(const Sampling& sampling, std::int64_t tokens) const {
        GenerateRequest request;
        request.prompt = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3};
        request.max_tokens = tokens;
        request.sampling = sampling;
        return request;
    }

    TempDir folder_;
    std::unique_ptr<Engine> engine_;
};

TEST_F(Drafted, every_drafter_gives_the_undrafted_text) {
    const std::vector<Sampling> samplings = {
        {}, {.temperature = 1, .top_k = 30, .presence_penalty = 0.5, .seed = 9}};
    for (const Sampling& sampling : samplings) {
        for (const std::int64_t tokens : {0, 1, 2, 3, 60}) {
            const Completion want = generate({}, request(sampling, tokens));
            for (const DraftKind kind : {DraftKind::suffix, DraftKind::mtp}) {
                for (const std::int64_t rows : {2, 5, 16}) {
                    const Completion got =
                        generate({.kind = kind, .rows = rows}, request(sampling, tokens));
                    EXPECT_EQ(got.tokens, want.tokens) << rows << ' ' << tokens;
                    EXPECT_EQ(got.text, want.text);
                    EXPECT_EQ(got.finish, want.finish);
                    const auto by_position =
                        std::accumulate(got.draft.accepted_by_position.begin(),
                                        got.draft.accepted_by_position.end(), std::int64_t{0});
                    EXPECT_EQ(by_position, got.draft.accepted);
                    EXPECT_LE(got.draft.accepted, got.draft.drafted);
                    // Each window gives its accepted guesses and one token more; the first token
                    // is the prompt's.
                    if (got.finish == Finish::length && tokens > 0) {
                        EXPECT_EQ(got.draft.windows + got.draft.accepted, tokens - 1);
                    }
                }
            }
        }
    }
}

TEST_F(Drafted, the_context_and_stop_strings_end_a_window_where_they_end_plain_text) {
    GenerateRequest whole = request({}, -1);
    whole.ignore_end_tokens = true;
    const Completion plain = generate({}, whole);
    GenerateRequest stopped = whole;
    // A character in the middle of the text, whole.
    std::size_t at = plain.text.size() / 2;
    while (static_cast<unsigned char>(plain.text[at]) >= 0x80) ++at;
    stopped.stops = {plain.text.substr(at, 1)};
    const Completion want = generate({}, stopped);
    for (const DraftKind kind : {DraftKind::suffix, DraftKind::mtp}) {
        EXPECT_EQ(generate({.kind = kind, .rows = 7}, whole).tokens, plain.tokens);
        const Completion got = generate({.kind = kind, .rows = 7}, stopped);
        EXPECT_EQ(got.tokens, want.tokens);
        EXPECT_EQ(got.text, want.text);
    }
}

TEST_F(Drafted, a_second_turn_is_drafted_as_a_fresh_run_would_be) {
    for (const DraftKind kind : {DraftKind::suffix, DraftKind::mtp}) {
        const Drafting drafting{.kind = kind, .rows = 4};
        Session session = engine_->make_session(0, drafting).value();
        GenerateRequest first = request({}, 20);
        first.ignore_end_tokens = true;
        const Completion turn = session.generate(first).value();
        GenerateRequest second = first;
        second.prompt.insert(second.prompt.end(), turn.tokens.begin(), turn.tokens.end());
        second.prompt.insert(second.prompt.end(), {9, 8, 1, 2, 3});
        const Completion again = session.generate(second).value();
        const Completion fresh = generate(drafting, second);
        EXPECT_EQ(again.tokens, fresh.tokens);
        EXPECT_EQ(again.draft.drafted, fresh.draft.drafted);
        EXPECT_EQ(again.draft.accepted_by_position, fresh.draft.accepted_by_position);
    }
}

TEST_F(Drafted, drafting_out_of_range_is_an_error) {
    EXPECT_FALSE(engine_->make_session(0, {.kind = DraftKind::mtp, .rows = 1}).ok());
    EXPECT_FALSE(engine_->make_session(0, {.kind = DraftKind::suffix, .rows = 17}).ok());
    EXPECT_FALSE(engine_->make_session(0, {.kind = DraftKind::mtp, .confidence_min = 1.5}).ok());
}

}  // namespace
}  // namespace strata::test
