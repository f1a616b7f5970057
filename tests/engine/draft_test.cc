// Drafting through the public interface: the text is the undrafted one, and the counts add up.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "strata/convert.h"
#include "strata/engine.h"
#include "synth/synth.h"
#include "tests/golden/golden.h"
#include "tests/support/bad_token.h"
#include "tests/support/temp_dir.h"

namespace strata::test {
namespace {

using Tokens = std::vector<std::int32_t>;

class Drafted : public ::testing::Test {
  protected:
    Drafted() {
        synth::SynthOptions synth;
        synth.config = synth::preset("tiny").value();
        synth.output = folder_ / "tiny.gguf";
        EXPECT_TRUE(synth::synthesize(synth).ok());
        engine_ = Engine::load({.model = synth.output, .context = 100}).value();
    }

    // From now on.
    void keep_in(CacheKind cache) {
        engine_ =
            Engine::load({.model = folder_ / "tiny.gguf", .context = 100, .cache = cache}).value();
    }
    // From now on: faster where other tests run on the same cores.
    void run_on_one_thread() {
        engine_ =
            Engine::load({.model = folder_ / "tiny.gguf", .threads = 1, .context = 100}).value();
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

// SPEC-17: with an MTP layer and without a draft of another kind.
TEST_F(Drafted, every_drafter_gives_the_undrafted_text) {
    const std::vector<Sampling> samplings = {
        {}, {.temperature = 1, .top_k = 30, .presence_penalty = 0.5, .seed = 9}};
    for (const Sampling& sampling : samplings) {
        for (const std::int64_t tokens : {0, 1, 2, 3, 60}) {
            keep_in(tokens < 60 ? CacheKind::f16 : CacheKind::q8_0);
            const Completion want = generate({}, request(sampling, tokens));
            for (const DraftKind kind :
                 {DraftKind::suffix, DraftKind::mtp, DraftKind::joined, DraftKind::best}) {
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

// SPEC-29: no near tie falls otherwise in a window than alone.
TEST_F(Drafted, many_greedy_texts_are_the_undrafted_ones) {
    constexpr int kPrompts = 100;
    run_on_one_thread();
    std::int64_t accepted = 0;
    for (int i = 0; i < kPrompts; ++i) {
        GenerateRequest asked = request({}, 12);
        for (std::int32_t& token : asked.prompt) token = (token * 41 + i * 7) % 256;
        const Completion want = generate({}, asked);
        for (const DraftKind kind : {DraftKind::mtp, DraftKind::joined}) {
            const Completion got = generate({.kind = kind, .rows = 8}, asked);
            EXPECT_EQ(got.tokens, want.tokens) << i;
            accepted += got.draft.accepted;
        }
    }
    EXPECT_GT(accepted, 0);
}

// SAMP-05
TEST_F(Drafted, texts_of_every_temperature_are_the_undrafted_ones_and_no_count_is_negative) {
    for (const double temperature : {0.0, 1e-300, 1e-8, 1e-3, 1.0, 2.0, 1e6}) {
        const GenerateRequest asked = request({.temperature = temperature, .seed = 3}, 20);
        const Completion want = generate({}, asked);
        for (const DraftKind kind : {DraftKind::suffix, DraftKind::mtp}) {
            const Completion got = generate({.kind = kind, .rows = 6}, asked);
            EXPECT_EQ(got.tokens, want.tokens) << temperature;
            EXPECT_GE(got.draft.accepted, 0);
            EXPECT_LE(got.draft.accepted, got.draft.drafted);
        }
        if (temperature < 1e-3) {
            EXPECT_EQ(want.tokens, generate({}, request({}, 20)).tokens) << temperature;
        }
    }
}

// SPEC-26, SPEC-22, SPEC-23: an end after a rejected guess is as likely as the target makes it, so
// that texts end where they end undrafted, however far is guessed; and nothing comes or is counted
// after it.
TEST_F(Drafted, an_end_that_is_drawn_ends_the_text_at_every_depth) {
    int ended = 0;
    for (std::uint64_t seed = 1; ended < 2; ++seed) {
        ASSERT_LT(seed, 100u);
        const GenerateRequest asked = request({.temperature = 1, .seed = seed}, 60);
        const Completion want = generate({}, asked);
        if (want.finish != Finish::stop || want.tokens.size() < 4) continue;
        ++ended;
        for (const DraftKind kind : {DraftKind::mtp, DraftKind::best}) {
            for (const std::int64_t rows : {2, 3, 4, 16}) {
                const Completion got = generate({.kind = kind, .rows = rows}, asked);
                EXPECT_EQ(got.tokens, want.tokens) << rows << ' ' << seed;
                EXPECT_EQ(got.finish, Finish::stop);
                // Of the last window there is a token beside the guesses where the end was none.
                const std::int64_t counted = got.draft.windows + got.draft.accepted;
                const std::int64_t tokens = std::ssize(got.tokens) - 1;
                EXPECT_TRUE(counted == tokens || counted == tokens + 1) << counted << ' ' << tokens;
            }
        }
    }
}

// SPEC-10: the request ends, and nothing of it is left in what the session and the engine keep.
TEST_F(Drafted, a_step_without_numbers_ends_its_request_and_poisons_no_other) {
    const Completion want = generate({}, request({}, 30));
    constexpr std::int32_t kBad = 60;
    ASSERT_EQ(std::count(want.tokens.begin(), want.tokens.end(), kBad), 0);
    engine_ = Engine::load({.model = with_a_bad_token(folder_ / "tiny.gguf", folder_, kBad),
                            .context = 100,
                            .checkpoints = 16 << 20})
                  .value();
    for (const DraftKind kind : {DraftKind::none, DraftKind::mtp, DraftKind::best}) {
        Session session = engine_->make_session(0, {.kind = kind}).value();
        GenerateRequest bad = request({}, 30);
        bad.prompt.push_back(kBad);
        for (int i = 0; i < 2; ++i) {
            const auto failed = session.generate(bad);
            ASSERT_FALSE(failed.ok());
            EXPECT_TRUE(failed.error().message.starts_with("'" + folder_ / "bad.gguf" + "': "))
                << failed.error().message;
            EXPECT_NE(failed.error().message.find("NaN"), std::string::npos)
                << failed.error().message;
            EXPECT_EQ(session.generate(request({}, 30)).value().tokens, want.tokens);
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
    for (const DraftKind kind :
         {DraftKind::suffix, DraftKind::mtp, DraftKind::joined, DraftKind::best}) {
        EXPECT_EQ(generate({.kind = kind, .rows = 7}, whole).tokens, plain.tokens);
        const Completion got = generate({.kind = kind, .rows = 7}, stopped);
        EXPECT_EQ(got.tokens, want.tokens);
        EXPECT_EQ(got.text, want.text);
    }
}

// SPEC-02: cold, and where what is left to read after a conversation's beginning is as long.
TEST_F(Drafted, a_prompt_as_long_as_a_window_is_still_a_prompt) {
    constexpr std::int64_t kGuessesMax = 8;
    run_on_one_thread();
    const Tokens source = request({}, 0).prompt;
    std::vector<Completion> want;
    for (std::size_t length = 1; length <= source.size(); ++length) {
        GenerateRequest asked = request({}, 32);
        asked.prompt.resize(length);
        want.push_back(generate({}, asked));
    }
    GenerateRequest beginning = request({}, 3);
    beginning.prompt = {9, 8, 7, 6, 5};
    for (std::int64_t guesses = 1; guesses <= kGuessesMax; ++guesses) {
        const Drafting drafting{.kind = DraftKind::mtp, .rows = guesses + 1};
        for (std::int64_t length = 1; length <= guesses + 3; ++length) {
            GenerateRequest asked = request({}, 32);
            asked.prompt.resize(static_cast<std::size_t>(length));
            EXPECT_EQ(generate(drafting, asked).tokens,
                      want[static_cast<std::size_t>(length) - 1].tokens)
                << length << ' ' << guesses;
        }
        Session session = engine_->make_session(0, drafting).value();
        EXPECT_TRUE(session.generate(beginning).ok());
        GenerateRequest resumed = request({}, 32);
        const auto held = session.tokens();
        resumed.prompt.assign(held.begin(), held.end());
        resumed.prompt.insert(resumed.prompt.end(), source.begin(), source.begin() + guesses + 1);
        const Completion got = session.generate(resumed).value();
        EXPECT_EQ(got.timings.prompt_tokens, guesses + 1);
        EXPECT_EQ(got.tokens, generate({}, resumed).tokens) << guesses;
    }
}

// SPEC-23: seven guesses and from no to eight rows of room at the end of a context of whole blocks.
TEST_F(Drafted, windows_shrink_where_the_context_ends) {
    constexpr std::int64_t kContext = 64;
    for (std::int64_t room = 0; room <= 8; ++room) {
        GenerateRequest open_end = request({}, -1);
        open_end.ignore_end_tokens = true;
        const Tokens source = open_end.prompt;
        open_end.prompt.clear();
        for (std::size_t i = 0; std::ssize(open_end.prompt) < kContext - room; ++i) {
            open_end.prompt.push_back(source[i % source.size()]);
        }
        Session plain = engine_->make_session(kContext).value();
        const Completion want = plain.generate(open_end).value();
        EXPECT_EQ(static_cast<std::int64_t>(want.tokens.size()), room + 1);
        for (const DraftKind kind :
             {DraftKind::suffix, DraftKind::mtp, DraftKind::joined, DraftKind::best}) {
            Session session = engine_->make_session(kContext, {.kind = kind, .rows = 8}).value();
            const Completion got = session.generate(open_end).value();
            EXPECT_EQ(got.tokens, want.tokens) << room;
            EXPECT_EQ(got.finish, Finish::length) << room;
        }
    }
}

TEST_F(Drafted, a_cancelled_answer_is_gone_on_with_as_a_fresh_run_would_be) {
    for (const DraftKind kind : {DraftKind::suffix, DraftKind::mtp}) {
        const Drafting drafting{.kind = kind, .rows = 6};
        Session session = engine_->make_session(0, drafting).value();
        GenerateRequest turn = request({}, 40);
        turn.ignore_end_tokens = true;
        int pieces = 0;
        const Completion cut =
            session.generate(turn, [&](std::string_view) { return ++pieces < 5; }).value();
        EXPECT_EQ(cut.finish, Finish::cancelled);
        turn.prompt.insert(turn.prompt.end(), cut.tokens.begin(), cut.tokens.end());
        const Completion resumed = session.generate(turn).value();
        const Completion fresh = generate(drafting, turn);
        EXPECT_EQ(resumed.tokens, fresh.tokens);
        EXPECT_EQ(resumed.draft.drafted, fresh.draft.drafted);
        EXPECT_EQ(resumed.draft.accepted_by_position, fresh.draft.accepted_by_position);
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

TEST_F(Drafted, an_mtp_layer_in_a_file_of_its_own_guesses_as_the_model_s) {
    QuantizeRequest request;
    request.input = folder_ / "tiny.gguf";
    request.type = "bf16";
    const auto part = [&](const char* name, bool no_mtp, bool only_mtp) {
        request.output = folder_ / name;
        request.no_mtp = no_mtp;
        request.only_mtp = only_mtp;
        EXPECT_TRUE(quantize_model(request).ok());
        return request.output;
    };
    const std::string model = part("whole.gguf", false, false);
    const std::string layer = part("layer.gguf", false, true);
    const std::string trunk = part("trunk.gguf", true, false);
    const auto bare = Engine::load({.model = trunk}).value();
    EXPECT_FALSE(bare->info().has_mtp);
    EXPECT_FALSE(bare->make_session(0, {.kind = DraftKind::mtp}).ok());
    const Tokens text = {1, 2, 3, 4, 5};
    const auto whole = Engine::load({.model = model}).value();
    const Draft want = whole->draft_mtp(text, 6, 5, 0).value();
    for (const std::string& from : {layer, model}) {
        const auto joined = Engine::load({.model = trunk, .mtp = from}).value();
        const Draft got = joined->draft_mtp(text, 6, 5, 0).value();
        EXPECT_EQ(got.path, want.path);
        EXPECT_EQ(got.confidence, want.confidence);
    }
    EXPECT_FALSE(Engine::load({.model = model, .mtp = trunk}).ok()) << "no layer in it";
    const auto alone = Engine::load({.model = layer});
    ASSERT_FALSE(alone.ok());
    EXPECT_EQ(alone.error().message,
              "'" + layer + "' holds an MTP layer alone (a file for --mtp), wanted a model");
    synth::SynthOptions other;
    other.config = synth::preset("tiny").value();
    other.config.experts = 8;
    other.output = folder_ / "other.gguf";
    ASSERT_TRUE(synth::synthesize(other).ok());
    const auto refused = Engine::load({.model = model, .mtp = other.output});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("number of experts is 8"), std::string::npos)
        << refused.error().message;
}

TEST_F(Drafted, drafting_out_of_range_is_an_error) {
    EXPECT_FALSE(engine_->make_session(0, {.kind = DraftKind::mtp, .rows = 1}).ok());
    EXPECT_FALSE(engine_->make_session(0, {.kind = DraftKind::suffix, .rows = 17}).ok());
    EXPECT_FALSE(engine_->make_session(0, {.kind = DraftKind::mtp, .confidence_min = 1.5}).ok());
    EXPECT_FALSE(engine_->make_session(0, {.kind = DraftKind::dflash}).ok());
}

// The golden target with its DFlash2 draft of random weights.
class BlockDrafted : public ::testing::Test {
  protected:
    BlockDrafted() {
        const std::string golden = golden_directory("tiny");
        for (const char* part : {"target", "draft"}) {
            ConvertRequest request;
            request.directory = golden + "/" + part;
            request.output = folder_ / (std::string(part) + ".gguf");
            request.type = "bf16";
            EXPECT_TRUE(convert_checkpoint(request).ok());
        }
        engine_ = load(100);
    }
    std::unique_ptr<Engine> load(std::int64_t context, CacheKind cache = CacheKind::f16) {
        return Engine::load({.model = folder_ / "target.gguf",
                             .dflash = folder_ / "draft.gguf",
                             .context = context,
                             .chunk = 8,
                             .cache = cache})
            .value();
    }
    static GenerateRequest request(const Sampling& sampling, std::int64_t tokens) {
        GenerateRequest request;
        request.prompt = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3};
        request.max_tokens = tokens;
        request.sampling = sampling;
        request.ignore_end_tokens = true;
        return request;
    }

    TempDir folder_;
    std::unique_ptr<Engine> engine_;
};

TEST_F(BlockDrafted, the_text_is_the_undrafted_one_at_every_width_and_floor) {
    for (const Sampling& sampling : {Sampling{}, Sampling{.temperature = 1, .seed = 9}}) {
        engine_ = load(100, sampling.temperature > 0 ? CacheKind::q8_0 : CacheKind::f16);
        for (const std::int64_t tokens : {2, 3, 24}) {
            const GenerateRequest wanted = request(sampling, tokens);
            const Completion want = engine_->make_session().value().generate(wanted).value();
            for (const std::int64_t rows : {0, 2, 16}) {
                for (const double floor : {0.0, 1.0}) {
                    Session session = engine_
                                          ->make_session(0, {.kind = DraftKind::dflash,
                                                             .rows = rows,
                                                             .confidence_min = floor})
                                          .value();
                    const Completion got = session.generate(wanted).value();
                    EXPECT_EQ(got.tokens, want.tokens) << rows << ' ' << tokens;
                    EXPECT_EQ(got.draft.kind, "dflash");
                    EXPECT_EQ(got.draft.drafted == 0, tokens == 2 || floor > 0);
                }
            }
        }
    }
}

TEST_F(BlockDrafted, the_best_of_all_gives_the_undrafted_text_and_counts_add_up) {
    for (const Sampling& sampling : {Sampling{}, Sampling{.temperature = 1, .seed = 9}}) {
        const GenerateRequest wanted = request(sampling, 60);
        const Completion want = engine_->make_session().value().generate(wanted).value();
        const Completion got =
            engine_->make_session(0, {.kind = DraftKind::best}).value().generate(wanted).value();
        EXPECT_EQ(got.tokens, want.tokens);
        DrafterCounts sum;
        std::string names;
        for (const DrafterCounts& one : got.draft.by_drafter) {
            sum.windows += one.windows;
            sum.drafted += one.drafted;
            sum.accepted += one.accepted;
            names += one.name + ' ';
        }
        EXPECT_EQ(names, "none suffix mtp dflash ");
        EXPECT_EQ(sum.windows, got.draft.windows);
        EXPECT_EQ(sum.drafted, got.draft.drafted);
        EXPECT_EQ(sum.accepted, got.draft.accepted);
        EXPECT_EQ(got.draft.windows + got.draft.accepted, 59);
    }
}

// SPEC-08: each drafter has what it needs, and the one that has not says so and is in no other's
// way.
TEST_F(BlockDrafted, without_an_mtp_layer_all_other_drafters_work) {
    QuantizeRequest without;
    without.input = folder_ / "target.gguf";
    without.output = folder_ / "trunk.gguf";
    without.type = "bf16";
    without.no_mtp = true;
    ASSERT_TRUE(quantize_model(without).ok());
    const GenerateRequest wanted = request({}, 24);
    const Completion want = engine_->make_session().value().generate(wanted).value();
    const auto trunk =
        Engine::load({.model = without.output, .dflash = folder_ / "draft.gguf", .context = 100})
            .value();
    for (Engine* engine : {engine_.get(), trunk.get()}) {
        for (const DraftKind kind :
             {DraftKind::suffix, DraftKind::dflash, DraftKind::joined, DraftKind::best}) {
            Session session = engine->make_session(0, {.kind = kind}).value();
            const Completion got = session.generate(wanted).value();
            EXPECT_EQ(got.tokens, want.tokens);
            std::string names;
            for (const DrafterCounts& one : got.draft.by_drafter) names += one.name + ' ';
            const bool mtp = kind == DraftKind::best && engine == engine_.get();
            if (!names.empty()) {
                EXPECT_EQ(names, mtp ? "none suffix mtp dflash " : "none suffix dflash ");
            }
        }
    }
    EXPECT_TRUE(engine_->make_session(0, {.kind = DraftKind::mtp}).ok());
    const auto refused = trunk->make_session(0, {.kind = DraftKind::mtp});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("has no MTP layer, and its guesses were asked for"),
              std::string::npos)
        << refused.error().message;
}

// SPEC-23
TEST_F(BlockDrafted, a_block_shrinks_where_the_context_ends) {
    GenerateRequest open_end = request({}, -1);
    for (std::int64_t room = 0; room <= 8; ++room) {
        const std::int64_t context = std::ssize(open_end.prompt) + room;
        const Completion want = engine_->make_session(context).value().generate(open_end).value();
        const Completion got = engine_->make_session(context, {.kind = DraftKind::dflash})
                                   .value()
                                   .generate(open_end)
                                   .value();
        EXPECT_EQ(got.tokens, want.tokens) << room;
        EXPECT_EQ(std::ssize(got.tokens), room + 1);
    }
}

TEST_F(BlockDrafted, a_restored_session_drafts_as_the_one_that_was_saved) {
    const Drafting drafting{.kind = DraftKind::dflash, .rows = 4, .confidence_min = 0.1};
    Session session = engine_->make_session(0, drafting).value();
    GenerateRequest turn = request({}, 20);
    turn.keep_states = false;
    const Completion first = session.generate(turn).value();
    const std::string saved = session.save().value();
    turn.prompt.insert(turn.prompt.end(), first.tokens.begin(), first.tokens.end());
    const Completion want = session.generate(turn).value();
    const Completion fresh = engine_->make_session(0, drafting).value().generate(turn).value();
    Session other = engine_->make_session(0, drafting).value();
    ASSERT_TRUE(other.restore(saved).ok());
    EXPECT_EQ(other.save().value(), saved);
    const Completion restored = other.generate(turn).value();
    EXPECT_EQ(restored.timings.prompt_tokens, 1);
    for (const Completion& got : {fresh, restored}) {
        EXPECT_EQ(got.tokens, want.tokens);
        EXPECT_EQ(got.draft.drafted, want.draft.drafted);
        EXPECT_EQ(got.draft.accepted_by_position, want.draft.accepted_by_position);
    }
    // Without the draft's cells the text goes on all the same.
    Session plain = engine_->make_session().value();
    ASSERT_TRUE(plain.restore(saved).ok());
    ASSERT_TRUE(other.restore(plain.save().value()).ok());
    EXPECT_EQ(other.generate(turn).value().tokens, want.tokens);
}

// SPEC-07
TEST_F(BlockDrafted, drafts_do_not_depend_on_the_context_s_size) {
    const Drafting drafting{.kind = DraftKind::dflash, .confidence_min = 0.1};
    const GenerateRequest wanted = request({}, 40);
    const Completion want = engine_->make_session(0, drafting).value().generate(wanted).value();
    for (const std::int64_t context : {52, 64, 128, 129}) {
        const auto engine = load(context);
        const Completion got = engine->make_session(0, drafting).value().generate(wanted).value();
        EXPECT_EQ(got.draft.drafted, want.draft.drafted) << context;
        EXPECT_EQ(got.draft.accepted_by_position, want.draft.accepted_by_position) << context;
    }
}

}  // namespace
}  // namespace strata::test
