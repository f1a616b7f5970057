// How well a model predicts a text, and how far two files of one model are apart.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/engine.h"
#include "strata/result.h"

namespace strata {

// The text is cut into windows of `window` tokens, each run from an empty state. A window begins
// with the last token of the one before, so that every token but the text's first is predicted
// exactly once. The first predictions of a window know little of the text: figures of different
// windows are not comparable.
inline constexpr std::int64_t kEvalWindowDefault = 512;

// Predictions made and in all. False ends the work with an error.
using EvalProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

// A mean over predictions and the standard error of it, taken as if they were independent.
struct Mean {
    double value = 0;
    double error = 0;
};

struct Perplexity {
    std::int64_t tokens = 0;  // of the text; one less is predicted
    std::int64_t window = 0;
    Mean nats;                 // of a token: -ln of the probability that it was given
    Mean perplexity;           // exp(nats.value), and the error that follows from nats.error
    double bits_per_byte = 0;  // of all predictions together, over the bytes of the whole text
};

// `window` 0: kEvalWindowDefault, or the engine's context where that is less. Errors: no tokenizer,
// a text of fewer than 2 tokens, a window outside 2 .. context, logits that are not finite.
Result<Perplexity> perplexity(Engine& engine, std::string_view text, std::int64_t window,
                              const EvalProgress& progress = {});

struct Agreement {
    std::int64_t tokens = 0;  // of the text; one less is predicted
    std::int64_t window = 0;
    Mean divergence;  // nats a prediction: KL(Q || P) = sum of Q ln(Q / P), Q the other model's
    double largest_divergence = 0;
    std::int64_t largest_position = 0;  // of the token, counted from 0, after which it is largest
    double same_top = 0;  // share of predictions whose likeliest token is the same, ties by id
    // Of the others: how far the other model puts its likeliest token's logit above that of the
    // token which is likeliest here, the largest such margin: near 0, only near ties fell
    // otherwise.
    double largest_margin = 0;
};

struct AgreementRequest {
    EngineOptions model;
    EngineOptions against;  // a file of the same model, or the same one on another device
    std::string text;
    std::int64_t window = 0;  // as for perplexity
};

// Runs both models over the same tokens. Holds one window's logits of the other model: window *
// vocabulary floats. Errors: as for perplexity; models of different vocabularies or tokenizers.
Result<Agreement> agreement(const AgreementRequest& request, const EvalProgress& progress = {});

// Texts of one kind: "code", "prose".
struct TextKind {
    std::string name;
    std::string text;
    // A prompt is a line of the text, asked in the model's chat form, instead of a piece of it.
    bool questions = false;
    // The prompts as they are, where they are not to be taken from the text.
    std::vector<std::string> given = {};
};

// Of a kind: all of them are in memory at once.
inline constexpr std::int64_t kTrialPromptsMax = 100'000;

// Prompts, each continued without a drafter and then with every one of `draftings`.
struct DraftTrialRequest {
    std::vector<TextKind> kinds;      // what prompts are cut from; empty: random tokens
    std::int64_t prompts = 10;        // of each kind, spread over its text, unless given
    std::int64_t prompt_tokens = 64;  // of each; questions have their own length
    std::int64_t max_tokens = 64;     // generated after each
    Sampling sampling;                // prompt i of all is drawn with seed + i
    std::vector<Drafting> draftings;
    // Of all texts with a drafter, one after another, every shards-th from this one on: what
    // several processes share between them.
    std::int64_t shard = 0;
    std::int64_t shards = 1;
};

// The first token that is not what it is without a drafter.
struct TextDifference {
    std::int64_t prompt = 0;    // of its kind, counted from 0
    std::int64_t position = 0;  // among the generated tokens; the shorter text's end where one ends
    std::int32_t wanted = -1;   // -1: the text has ended
    std::int32_t found = -1;
};

// One drafting on one kind of text. The first trial of a kind is without a drafter.
struct DraftTrial {
    std::string kind;
    Drafting drafting;
    std::int64_t prompts = 0;  // that were continued
    std::int64_t tokens = 0;   // generated
    double decode_ms = 0;
    DraftCounts counts;
    std::int64_t different =
        0;  // prompts whose text is not that without a drafter: 0 if all is well
    std::optional<TextDifference> first;
};

// Trials of a kind take turns on each prompt, so that a machine's slow moments fall on all;
// `progress` counts texts with a drafter. Errors:
// a text too short for the prompts or no tokenizer for it, a model that does not chat where there
// are questions, options out of range, a drafter that is not loaded.
Result<std::vector<DraftTrial>> draft_trials(Engine& engine, const DraftTrialRequest& request,
                                             const EvalProgress& progress = {});

struct ImportanceRequest {
    std::string text;
    std::string output;
    std::int64_t window = 0;  // as for perplexity
};

struct Importance {
    std::int64_t tokens = 0;
    std::int64_t window = 0;
    std::int64_t tensors = 0;
    // A tensor holds one, or one of each expert. Those of experts that no token chose were
    // multiplied with nothing; quantize encodes them as without importance.
    std::int64_t matrices = 0;
    std::int64_t matrices_unused = 0;
};

// Writes how large the inputs of every matrix are on a text, column by column, for quantize: a GGUF
// file as llama.cpp's imatrix writes it, whole or not at all. Errors: as for perplexity; the file
// cannot be written.
Result<Importance> gather_importance(Engine& engine, const ImportanceRequest& request,
                                     const EvalProgress& progress = {});

}  // namespace strata
