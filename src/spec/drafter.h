// Drafters guess the tokens that follow. A guess can be wrong but not harmful: the target verifies
// each one, so drafters change the speed and never the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "spec/follower.h"

namespace strata::spec {

// How the target's tokens will be drawn. A drafter that draws its guesses in the same way, with the
// same noise, is right more often than one that guesses the likeliest.
class Draw {
  public:
    virtual ~Draw() = default;
    // The token after `before`, from logits of the whole vocabulary, or from logits of `tokens`
    // alone. Error: no logit to draw from.
    virtual Result<std::int32_t> draw(std::span<const float> logits,
                                      std::span<const std::int32_t> before) = 0;
    virtual Result<std::int32_t> draw_among(std::span<const std::int32_t> tokens,
                                            std::span<const float> logits,
                                            std::span<const std::int32_t> before) = 0;
    // What a device that draws is told for draw_of() after `before`, until the next call; null: all
    // logits are wanted.
    virtual const model::Draws* draws([[maybe_unused]] std::span<const std::int32_t> before) {
        return nullptr;
    }
    // What a device that draws a chain of up to `count` guesses after `before` is told, in the way
    // of op::DflashSelect, until the next call; null: of each the largest logit is the guess.
    // `count` is at most op::kDrawRowsMax.
    virtual const model::Draws* draws_along([[maybe_unused]] std::span<const std::int32_t> before,
                                            [[maybe_unused]] std::int64_t count) {
        return nullptr;
    }
    // The token that draw() or draw_among() would give, or nothing where what was picked does not
    // tell.
    virtual Result<std::optional<std::int32_t>> draw_of(const model::RowPick&,
                                                        std::span<const std::int32_t>) {
        return std::optional<std::int32_t>();
    }
};

// A text and guesses after it as one sequence.
class Continued {
  public:
    explicit Continued(std::span<const std::int32_t> text)
        : tokens_(text.begin(), text.end()), length_(text.size()) {}

    // Valid until the next call.
    std::span<const std::int32_t> by(std::span<const std::int32_t> chain) {
        tokens_.resize(length_);
        tokens_.insert(tokens_.end(), chain.begin(), chain.end());
        return tokens_;
    }

  private:
    std::vector<std::int32_t> tokens_;
    std::size_t length_;
};

struct GuessRequest {
    // A sequence whose last token the target has not run yet.
    std::span<const std::int32_t> text;
    std::int64_t count = 0;  // guesses at most
    Draw* draw = nullptr;    // null: the target takes the largest logit
    // Whether one more guess is wanted after these; empty: always.
    std::function<bool(std::span<const std::int32_t> chain, std::span<const float> confidence)>
        go_on;
};

struct Guesses {
    std::vector<std::int32_t> tokens;
    // One a guess, of drafters that have one: how likely the drafter took it to be.
    std::vector<float> confidence;
    // Guesses that were computed, those among them that were not worth making.
    std::int64_t computed = 0;
};

// What became of a window.
struct Verified {
    std::int64_t rows = 0;      // the last token and the guesses
    std::int64_t accepted = 0;  // guesses that were right
    double draft_ms = 0;
    double verify_ms = 0;
    std::string_view source = "none";  // who guessed
};

// One drafter goes along with one sequence; what it needs of the rows it takes as a follower.
class Drafter : public Follower {
  public:
    virtual std::string_view name() const = 0;

    // Guesses what follows a text. Between two calls the text only grows, unless reset() is called.
    // Fewer guesses than asked for, or none, are always allowed.
    virtual Result<Guesses> guess(const GuessRequest& request) = 0;

    // Rows of the text that its next guess has to take in first.
    virtual std::int64_t behind() const { return 0; }

    // Told after every window, whoever guessed in it.
    virtual void verified(const Verified&) {}
    // Who made the last guesses, where that changes.
    virtual std::string_view source() const { return name(); }

    // The next text is another one.
    virtual void reset() {}

    void want(const StepRows&, model::StepRequest&) override {}
    Status keep(std::int64_t, std::span<const std::int32_t>, const model::StepResult&) override {
        return Ok{};
    }

    // What it remembers of the text that the text itself does not say; and back. Bytes of another
    // drafter leave it as after reset().
    virtual std::string save() { return {}; }
    virtual void restore(std::string_view) { reset(); }
};

}  // namespace strata::spec
