// DFlash2 drafts on CUDA, where the build has it: features never leave the device.

#include <gtest/gtest.h>

#include "engine/sampler.h"
#include "spec/dflash_drafter.h"
#include "spec/mtp.h"
#include "spec/round.h"
#include "synth/synth.h"
#include "tests/model/tiny_target.h"
#include "tests/spec/draft_case.h"
#include "tests/support/backends.h"
#include "tests/support/compare.h"

namespace strata::test {
namespace {

constexpr dflash::ContextOptions kOptions{64, op::CacheType::f16};

// A sequence and what its drafter made of it.
struct Followed {
    GoldenDraft golden;
    std::unique_ptr<dflash::BlockModel> model;
    model::Sequence sequence;
    std::unique_ptr<spec::DflashDrafter> drafter;
    dflash::Context context;  // gets the same features by way of the host

    explicit Followed(const Backend* backend)
        : golden("tiny", backend),
          model(golden.drafter()),
          sequence(golden.target().make_sequence({64, op::CacheType::f16, false}).value()),
          drafter(spec::DflashDrafter::create(*model, kOptions, 0).value()),
          context(model->make_context(kOptions).value()) {}

    // Runs a window twice: features stay where they are, or come to the host.
    void run(const Tokens& tokens) {
        model::Target& target = golden.target();
        const std::int64_t first = sequence.length();
        const auto rows = static_cast<std::int64_t>(tokens.size());
        model::StepRequest request;
        request.tokens = tokens;
        request.window = true;
        request.logits = model::LogitRows::none;
        request.feature_layers = model->config().target_layers;
        const auto brought = target.step(sequence, request).value();
        EXPECT_EQ(brought.features.rows, rows);
        model->inject(context, first, brought.features);
        target.drop(sequence);
        drafter->want({first, rows, first + rows}, request);
        const auto kept = target.step(sequence, request).value();
        EXPECT_EQ(kept.features.rows, 0);
        EXPECT_TRUE(drafter->keep(first, tokens, kept).ok());
        target.commit(sequence, rows);
    }
    // Rows that follow, with the features of the two that ran last.
    void follow(std::int64_t first, const Tokens& tokens, const std::vector<float>& features) {
        const std::int64_t width = model->config().feature_width();
        const auto rows = static_cast<std::int64_t>(tokens.size());
        model::StepRequest request;
        drafter->want({first, rows, first + rows}, request);
        model::StepResult kept;
        kept.features = {features.data(), rows, width};
        EXPECT_TRUE(drafter->keep(first, tokens, kept).ok());
        model->inject(context, first, kept.features);
    }
    spec::Guesses guess(Tokens text) { return drafter->guess({text, 5, nullptr, {}}).value(); }
    dflash::Guess draft(const Tokens& text, const model::Draws* draws = nullptr) {
        dflash::DraftRequest request;
        request.draws = draws;
        request.position = static_cast<std::int64_t>(text.size()) - 1;
        request.anchor = text.back();
        request.rows = 6;
        return model->draft(context, request).value();
    }
};

TEST(CudaDraft, features_that_stay_on_the_device_give_the_drafts_of_those_that_come_to_the_host) {
    TestBackend* cuda = cuda_backend();
    Followed on_cpu(nullptr);
    std::unique_ptr<Followed> on_cuda;
    if (cuda != nullptr) on_cuda = std::make_unique<Followed>(&cuda->backend);
    const auto ids = on_cpu.golden.golden().ints("long.ids");
    Tokens text;
    for (const std::size_t rows : std::vector<std::size_t>{3, 1, 2}) {
        const Tokens window(ids.begin() + static_cast<std::ptrdiff_t>(text.size()),
                            ids.begin() + static_cast<std::ptrdiff_t>(text.size() + rows));
        text.insert(text.end(), window.begin(), window.end());
        Tokens with_anchor = text;
        with_anchor.push_back(ids[text.size()]);
        Tokens cpu_path;
        for (Followed* followed : {&on_cpu, on_cuda.get()}) {
            if (followed == nullptr) continue;
            followed->run(window);
            if (rows == 1) continue;  // two windows wait for the next guess
            const spec::Guesses got = followed->guess(with_anchor);
            const dflash::Guess want = followed->draft(with_anchor);
            EXPECT_EQ(got.tokens, want.path) << text.size();
            EXPECT_EQ(got.confidence, want.confidence) << text.size();
            if (followed == &on_cpu) cpu_path = got.tokens;
            EXPECT_EQ(got.tokens, cpu_path) << text.size();
        }
    }
}

TEST(CudaDraft, rows_and_the_guesses_after_them_are_one_launch) {
    TestBackend* cuda = cuda_backend();
    if (cuda == nullptr) GTEST_SKIP() << "a build without CUDA";
    Followed followed(&cuda->backend);
    const auto ids = followed.golden.golden().ints("long.ids");
    const auto features = followed.golden.features(followed.model->config(), 16);
    const std::int64_t width = followed.model->config().feature_width();
    // Submitted, captured, launched.
    for (std::size_t at = 0; at < 8; at += 2) {
        const Tokens rows(ids.begin() + static_cast<std::ptrdiff_t>(at),
                          ids.begin() + static_cast<std::ptrdiff_t>(at + 2));
        const Tokens text(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(at + 3));
        const auto first = static_cast<std::int64_t>(at);
        followed.follow(first, rows, slice(features, first, 2, width));
        static_cast<void>(followed.model->features_replaced());  // of the other way
        const auto before = cuda_counts();
        const spec::Guesses got = followed.guess(text);
        const auto after = cuda_counts();
        if (before && at >= 4) {
            EXPECT_TRUE(is_one_launch(*after - *before))
                << testing::PrintToString(*after - *before);
        }
        const dflash::Guess want = followed.draft(text);
        EXPECT_EQ(got.tokens, want.path) << at;
        EXPECT_EQ(got.confidence, want.confidence) << at;
    }
}

// A block's guesses, its candidates and scores at hand, are what the sampler draws of those.
TEST(CudaDraft, guesses_that_the_device_draws_are_the_hosts_draws_and_one_launch) {
    TestBackend* cuda = cuda_backend();
    Followed on_cpu(nullptr);
    std::unique_ptr<Followed> on_cuda;
    if (cuda != nullptr) on_cuda = std::make_unique<Followed>(&cuda->backend);
    const auto ids = on_cpu.golden.golden().ints("long.ids");
    const Tokens text(ids.begin(), ids.begin() + 9);
    for (Followed* followed : {&on_cpu, on_cuda.get()}) {
        if (followed == nullptr) continue;
        const auto features = followed->golden.features(followed->model->config(), 8);
        followed->model->inject(followed->context, 0,
                                {features.data(), 8, std::ssize(features) / 8});
        // Each time with other parameters: the third is the one that was captured.
        int drafts = 0;
        for (const Sampling& sampling :
             {Sampling{.temperature = 1, .seed = 3}, Sampling{.temperature = 3, .seed = 4},
              Sampling{.temperature = 2, .top_k = 3, .top_p = 0.9, .min_p = 0.1, .seed = 5},
              Sampling{.temperature = 4, .repeat_penalty = 1.3, .penalty_window = 2, .seed = 6},
              Sampling{.temperature = 0, .presence_penalty = 2}}) {
            Sampler sampler(sampling);
            static_cast<void>(followed->model->features_replaced());
            const auto before = cuda_counts();
            const dflash::Guess got = followed->draft(text, sampler.draws_along(text, 5));
            const auto after = cuda_counts();
            if (followed != &on_cpu && before && ++drafts >= 3) {
                EXPECT_TRUE(is_one_launch(*after - *before))
                    << testing::PrintToString(*after - *before);
            }
            ASSERT_EQ(got.path.size(), 5u);
            Tokens drawn = text;
            for (std::size_t i = 0; i < got.path.size(); ++i) {
                const auto width = static_cast<std::size_t>(got.width);
                const auto tokens = std::span(got.candidates).subspan(i * width, width);
                const auto scores = std::span(got.scores).subspan(i * width, width);
                EXPECT_EQ(got.path[i], sampler.draw_among(tokens, scores, drawn).value()) << i;
                drawn.push_back(got.path[i]);
            }
        }
    }
}

// The tokens and rows of the n-gram table go there, what was picked comes back; features lie where
// the next guess takes them.
TEST(CudaDraft, a_window_whose_features_a_draft_wants_is_one_launch) {
    TestBackend* cuda = cuda_backend();
    if (cuda == nullptr) GTEST_SKIP() << "a build without CUDA";
    Followed followed(&cuda->backend);
    model::Target& target = followed.golden.target();
    const auto ids = followed.golden.golden().ints("long.ids");
    model::StepRequest request;
    request.window = true;
    request.logits = model::LogitRows::all;
    request.picks = model::Picks::largest;
    // Submitted, captured and launched, of each of two states that take turns.
    for (std::int64_t at = 0; at < 6; ++at) {
        const Tokens rows(ids.begin() + at, ids.begin() + at + 1);
        request.tokens = rows;
        const auto before = cuda_counts();
        followed.drafter->want({at, 1, at + 1}, request);
        const auto result = target.step(followed.sequence, request).value();
        EXPECT_TRUE(followed.drafter->keep(at, rows, result).ok());
        target.commit(followed.sequence, 1);
        const auto after = cuda_counts();
        if (!before || at < 5) continue;
        CudaCounts counts = *after - *before;
        counts.kernels = counts.waits = 0;
        const std::int64_t uploads = target.config().ngram.present() ? 2 : 1;
        EXPECT_EQ(counts, (CudaCounts{0, 0, 1, uploads, 1, 0, 0}))
            << testing::PrintToString(counts);
    }
    EXPECT_EQ(followed.drafter->behind(), 6);
}

// Guesses what follows in a text that is known, every third time wrongly.
class Knowing final : public spec::Drafter {
  public:
    explicit Knowing(Tokens known) : known_(std::move(known)) {}

    std::string_view name() const override { return "knowing"; }
    Result<spec::Guesses> guess(const spec::GuessRequest& request) override {
        spec::Guesses guesses;
        for (std::size_t at = request.text.size(); at < known_.size(); ++at) {
            if (std::ssize(guesses.tokens) == request.count) break;
            guesses.tokens.push_back(++guesses_ % 3 == 0 ? request.text.back() : known_[at]);
        }
        return guesses;
    }

  private:
    Tokens known_;
    int guesses_ = 0;
};

// A text and how it came about.
struct Generated {
    Tokens text;
    std::vector<float> logits;  // of its last token
    int whole_rows = 0;         // that were taken from all logits
};

// Continues a prompt by `count` tokens; with `picks`, from what the device picked where that tells.
// `texts`, where given, are of an answer that is held to JSON and goes on inside a string.
Generated generate(model::Target& target, const Sampling& sampling, std::size_t count, bool picks,
                   spec::Drafter* drafter = nullptr, grammar::TokenSets* texts = nullptr) {
    Generated made{.text = {1, 2}, .logits = {}};
    Tokens& text = made.text;
    const std::size_t end = text.size() + count;
    model::Sequence sequence = target.make_sequence({64, op::CacheType::f16, false}).value();
    Sampler sampler(sampling);
    std::optional<AnswerRule> rule;
    if (texts != nullptr) {
        rule.emplace(*texts, std::span<const std::int32_t>(), std::nullopt);
        for (const char byte : {'{', '"'}) EXPECT_TRUE(rule->take(byte));
    }
    AnswerRule* const held_to = rule ? &*rule : nullptr;
    const auto take_token = [&](std::int32_t token) {
        text.push_back(token);
        if (rule) {
            EXPECT_TRUE(rule->take(token));
        }
        return text.size() >= end;
    };
    const auto position = [&] { return static_cast<std::int64_t>(text.size()); };
    spec::RoundParts parts{target, sequence, drafter};
    if (picks) {
        parts.ask = [&](std::span<const std::int32_t> before, std::span<const std::int32_t> window,
                        model::StepRequest& step) { sampler.ask(before, window, step); };
    }
    parts.take_pick = [&](const model::RowPick& pick) -> Result<std::optional<bool>> {
        const auto token = sampler.pick_of(pick, position(), held_to);
        return token ? std::optional(take_token(*token)) : std::optional<bool>();
    };
    const spec::Take take = [&](std::span<const float> row) -> Result<bool> {
        ++made.whole_rows;
        STRATA_ASSIGN(const std::int32_t token, sampler.pick(row, text, position(), held_to));
        return take_token(token);
    };
    model::StepRequest request;
    request.tokens = std::span(text).first(1);
    request.window = true;
    request.logits = model::LogitRows::none;
    EXPECT_TRUE(target.step(sequence, request).ok());
    target.commit(sequence, 1);
    while (text.size() < end) {
        const auto rows = static_cast<std::int64_t>(std::min<std::size_t>(4, end - text.size()));
        const auto round = spec::run_round(parts, text, rows, take, made.logits);
        EXPECT_TRUE(round.ok());
        if (!round.ok()) return made;
        if (!made.logits.empty()) continue;
        const auto last = target.fetch_logits(round->last_row);
        made.logits.assign(last.begin(), last.end());
    }
    return made;
}

TEST(CudaDraft, what_the_device_picks_changes_no_token) {
    TestBackend* cuda = cuda_backend();
    if (cuda == nullptr) GTEST_SKIP() << "only recorded steps pick on the device";
    GoldenDraft golden("tiny", &cuda->backend);
    for (const Sampling& sampling :
         {Sampling{}, Sampling{.temperature = 1, .top_k = 20, .top_p = 0.9, .seed = 3}}) {
        const Generated want = generate(golden.target(), sampling, 3, false);
        const Generated got = generate(golden.target(), sampling, 3, true);
        EXPECT_EQ(got.text, want.text);
        EXPECT_EQ(got.logits, want.logits);
    }
}

// SAMP-02
TEST(CudaDraft, what_the_device_draws_is_the_hosts_text_drafted_or_not) {
    TestBackend* cuda = cuda_backend();
    if (cuda == nullptr) GTEST_SKIP() << "only recorded steps draw on the device";
    TinyTarget cpu;
    const auto target = model::Target::load(gguf::File::open(cpu.path()).value(),
                                            *cuda->backend.device, cuda->backend.ops, 16)
                            .value();
    for (const Sampling& sampling :
         {Sampling{.temperature = 1, .top_k = 90, .top_p = 0.8, .seed = 3},
          Sampling{.temperature = 2, .min_p = 0.05, .presence_penalty = -1, .seed = 4},
          Sampling{.repeat_penalty = 1.5, .frequency_penalty = 1, .penalty_window = 3}}) {
        const Generated want = generate(*target, sampling, 4, false);
        Knowing drafter(want.text);
        for (spec::Drafter* with :
             {static_cast<spec::Drafter*>(nullptr), static_cast<spec::Drafter*>(&drafter)}) {
            const Generated got = generate(*target, sampling, 4, true, with);
            EXPECT_EQ(got.text, want.text);
            EXPECT_EQ(got.logits, want.logits);
            EXPECT_EQ(got.whole_rows, 0);
        }
    }
}

// Where the device picks a token that may not follow, or one of others than may, all logits tell.
TEST(CudaDraft, an_answer_held_to_json_is_the_hosts_drafted_or_not) {
    TestBackend* cuda = cuda_backend();
    if (cuda == nullptr) GTEST_SKIP() << "only recorded steps pick on the device";
    TinyTarget cpu;
    const auto target = model::Target::load(gguf::File::open(cpu.path()).value(),
                                            *cuda->backend.device, cuda->backend.ops, 16)
                            .value();
    const auto vocabulary = target->config().vocabulary;
    const Tokenizer tokenizer = Tokenizer::create(synth::byte_vocabulary(vocabulary)).value();
    grammar::TokenSets texts = text_tokens(tokenizer, {});
    int whole_rows = 0;
    for (const Sampling& sampling : {Sampling{}, Sampling{.temperature = 0.8, .seed = 3}}) {
        const Generated want = generate(*target, sampling, 3, false, nullptr, &texts);
        Knowing drafter(want.text);
        const Generated got = generate(*target, sampling, 3, true, &drafter, &texts);
        EXPECT_EQ(got.text, want.text);
        EXPECT_EQ(got.logits, want.logits);
        whole_rows += got.whole_rows;
    }
    EXPECT_GT(whole_rows, 0) << "of a rule a device knows nothing";
    EXPECT_LT(whole_rows, 6) << "now and then what was picked is enough";
}

// A draw for which no device can pick anything.
class OfAllLogits final : public spec::Draw {
  public:
    explicit OfAllLogits(Sampler& sampler) : sampler_(sampler) {}

    Result<std::int32_t> draw(std::span<const float> logits,
                              std::span<const std::int32_t> before) override {
        return sampler_.draw(logits, before);
    }
    Result<std::int32_t> draw_among(std::span<const std::int32_t> tokens,
                                    std::span<const float> logits,
                                    std::span<const std::int32_t> before) override {
        return sampler_.draw_among(tokens, logits, before);
    }

  private:
    Sampler& sampler_;
};

TEST(CudaDraft, guesses_of_the_mtp_layer_that_the_device_draws_are_the_hosts) {
    TestBackend* cuda = cuda_backend();
    if (cuda == nullptr) GTEST_SKIP() << "only recorded chains draw on the device";
    TinyTarget cpu;
    const auto target = model::Target::load(gguf::File::open(cpu.path()).value(),
                                            *cuda->backend.device, cuda->backend.ops, 16)
                            .value();
    auto sequence = target->make_sequence({64, op::CacheType::f16, true}).value();
    const Tokens text = {1, 2, 3};
    model::StepRequest request;
    request.tokens = std::span(text).first(2);
    request.window = true;
    ASSERT_TRUE(target->step(sequence, request).ok());
    target->commit(sequence, 2);
    spec::MtpDrafter drafter(*target, sequence, 0, 60);
    for (const Sampling& sampling :
         {Sampling{.temperature = 1, .presence_penalty = -1, .seed = 3},
          Sampling{.temperature = 2, .top_k = 90, .top_p = 0.9, .seed = 4}}) {
        Sampler sampler(sampling);
        OfAllLogits all(sampler);
        ASSERT_NE(sampler.draws(text), nullptr);
        const spec::Guesses want = drafter.guess({text, 2, &all, {}}).value();
        const spec::Guesses got = drafter.guess({text, 2, &sampler, {}}).value();
        EXPECT_EQ(got.tokens, want.tokens);
        expect_close("confidence", got.confidence, want.confidence, 2, Tolerance::projection());
    }
}

}  // namespace
}  // namespace strata::test
