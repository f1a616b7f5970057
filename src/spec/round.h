// One round of generation: draft, verify, keep. The same for every drafter and for none.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/target.h"
#include "spec/drafter.h"
#include "spec/follower.h"

namespace strata::spec {

// What the verifier's owner does with the logits of one position: takes the next token, appends it
// to the text, and says whether the text ends with it. Called for the positions of a window in
// order, and for no position past the first whose token was not guessed: so each call sees exactly
// the text that plain decoding would have at that position.
using Take = std::function<Result<bool>(std::span<const float> logits)>;

// The same from what a device picked; nothing where that does not say which token it is.
using TakePick = std::function<Result<std::optional<bool>>(const model::RowPick& pick)>;

struct RoundResult {
    bool ended = false;  // as the last call of Take said
    // Of the window: whose logits the last token was taken from. Where they stayed on the device,
    // they can be fetched.
    std::int64_t last_row = 0;
    Verified window;
};

// Says how a window's logits are to be had: which rows a device picks from and what it is told of.
// The window begins with the text's last token.
using Ask = std::function<void(std::span<const std::int32_t> text,
                               std::span<const std::int32_t> window, model::StepRequest& request)>;

// What rounds run on. Drafter and follower may be null.
struct RoundParts {
    model::Target& target;
    model::Sequence& sequence;
    Drafter* drafter = nullptr;
    Follower* follower = nullptr;
    Draw* draw = nullptr;     // as in GuessRequest
    Ask ask = {};             // null: all logits are wanted
    TakePick take_pick = {};  // is called first for rows that a device picked from
};

// `text` ends with a token that the sequence does not hold yet, after all those that it holds;
// `take` appends to it. Runs that token and the guesses in one window of at most `rows` rows, and
// commits the rows whose logits were taken: afterwards the sequence again holds all of the text but
// its last token, and `logits` is what that token was taken from, or empty where they stayed on the
// device. Errors: those of the target, the drafter, the follower and `take`; the window is then
// dropped.
Result<RoundResult> run_round(const RoundParts& parts, const std::vector<std::int32_t>& text,
                              std::int64_t rows, const Take& take, std::vector<float>& logits);

}  // namespace strata::spec
