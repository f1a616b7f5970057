// What an engine and its sessions are made of; private to this folder.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "backend/backend.h"
#include "engine/answer_rule.h"
#include "engine/checkpoints.h"
#include "engine/feature_dump.h"
#include "engine/text_out.h"
#include "grammar/token_sets.h"
#include "model/target.h"
#include "spec/dflash/block_model.h"
#include "spec/drafter.h"
#include "spec/policy.h"
#include "spec/round.h"
#include "strata/engine.h"
#include "tokenizer/tokenizer.h"

namespace strata {

// Declared in the order in which each is needed by the next.
struct Engine::Parts {
    EngineOptions options;
    Backend backend;
    std::unique_ptr<model::Target> target;
    std::unique_ptr<dflash::BlockModel> dflash;  // null without a draft
    std::optional<Tokenizer> tokenizer;
    ModelInfo info;
    std::optional<FeatureDump> dump;
    std::unique_ptr<spec::Policy> policy;  // of the drafters that there are, once one is chosen
    Checkpoints checkpoints{0};
    std::optional<grammar::TokenSets> texts;  // once an answer is held to a format
    std::int64_t context = 0;
    double load_ms = 0;

    model::SequenceOptions sequence_options(std::int64_t tokens, bool mtp) const;
    // The form in which prompts are read.
    op::DeltaForm prompt_form() const;
    bool is_end_token(std::int32_t token) const;
    // Whether states may be kept and brought back: prompts that are cut elsewhere get the same
    // bits, and no row is missing from a dump.
    bool keeps_states() const {
        return checkpoints.enabled() && !dump && options.prompt_form == PromptForm::recurrent;
    }

    // Error: a number out of range, a drafter that is not there.
    Status check_drafting(const Drafting& drafting) const;
    // Whether guesses of the MTP layer are among them.
    bool drafts_mtp(const Drafting& drafting) const;
    // Error: files that cannot be appended to, layers that the model has not.
    Status open_dump();

    // Reads `tokens` into the sequence as a prompt, in chunks that end at multiples of the chunk
    // size. `follower` may be null; `logits`, where given, becomes those of the last row.
    // `between`, where given, is called after each chunk but the last.
    Status read_prompt(model::Sequence& sequence, std::span<const std::int32_t> tokens,
                       spec::Follower* follower, std::vector<float>* logits,
                       const std::function<void()>& between = {});
};

struct Session::State final : spec::Follower {
    State(Engine::Parts& owner, model::Sequence empty, const Drafting& how)
        : parts(owner), sequence(std::move(empty)), drafting(how) {}

    Engine::Parts& parts;
    model::Sequence sequence;
    // Of the token after those committed; empty when they are not known.
    std::vector<float> next_logits;
    Drafting drafting;
    std::unique_ptr<spec::Drafter> drafter;  // null: none

    // Whether the request under way may draft: a drafter that cannot be used sees no row.
    bool drafts = false;
    // Whether states of the request under way become checkpoints.
    bool keeps = false;
    Checkpoints::Placed placed;

    Status make_drafter();
    Result<std::unique_ptr<spec::Drafter>> make_dflash(float floor);
    // The MTP layer in windows of at most `mtp_rows` rows.
    Result<std::unique_ptr<spec::Drafter>> make_joined(float floor, std::int64_t mtp_rows);
    Result<std::unique_ptr<spec::Drafter>> make_best(float floor);
    // Tells the policy what windows and guesses cost, where finding out takes a moment only. The
    // sequence is empty, before and after.
    Status calibrate(spec::Policy& policy, std::span<const std::unique_ptr<spec::Drafter>> drafters,
                     std::span<const spec::NeuralPrior> priors);
    void begin_counts(DraftCounts& counts) const;
    void count(const spec::Verified& window, DraftCounts& counts) const;
    Status check_request(const GenerateRequest& request) const;
    // What the request's format says of its answer.
    // Orders the vocabulary's tokens where no answer was held to anything before.
    std::optional<AnswerRule> rule_of(const GenerateRequest& request);
    // Brings the sequence to the longest known part of `prompt`; the last token may be among it
    // where the logits after it are known.
    void resume(std::span<const std::int32_t> prompt);
    // Makes the state a checkpoint.
    void keep_state();
    // Brings the sequence to exactly `prompt`.
    Status read(std::span<const std::int32_t> prompt, Completion& completion);
    // Takes tokens from next_logits on until something ends the generation.
    // `rule`: what the answer is held to; null: nothing.
    Status decode(const GenerateRequest& request, AnswerRule* rule, TextOut& out,
                  Completion& completion);
    // What a device is to pick, and what is done with it; as in spec::RoundParts.
    struct PickedBy {
        spec::Ask ask;
        spec::TakePick take;
    };
    // Verify windows from the last token of `text` on until `take` says that the text ends.
    Status run_rounds(const GenerateRequest& request, const std::vector<std::int32_t>& text,
                      const spec::Take& take, const PickedBy& picked, spec::Draw* draw,
                      Completion& completion);

    void want(const spec::StepRows& rows, model::StepRequest& request) override;
    Status keep(std::int64_t first, std::span<const std::int32_t> tokens,
                const model::StepResult& result) override;
};

inline double milliseconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
}

}  // namespace strata
