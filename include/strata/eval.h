// How well a model predicts a text, and how far two files of one model are apart.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

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
};

struct AgreementRequest {
    EngineOptions model;
    std::string against;  // a file of the same model, run with the same options
    std::string text;
    std::int64_t window = 0;  // as for perplexity
};

// Runs both models over the same tokens. Holds one window's logits of the other model: window *
// vocabulary floats. Errors: as for perplexity; models of different vocabularies or tokenizers.
Result<Agreement> agreement(const AgreementRequest& request, const EvalProgress& progress = {});

}  // namespace strata
