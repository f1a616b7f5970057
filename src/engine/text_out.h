// From generated tokens to text that may be shown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "strata/engine.h"
#include "tokenizer/stream.h"
#include "tokenizer/tokenizer.h"

namespace strata {

// Turns generated tokens into text and watches for what ends it.
class TextOut {
  public:
    TextOut(const std::optional<Tokenizer>& tokenizer, StopMatcher stops, const TextSink& sink,
            std::string& text)
        : tokenizer_(tokenizer), stops_(std::move(stops)), sink_(sink), text_(text) {}

    // False once a stop string is complete or the sink has had enough.
    bool push(std::int32_t token) {
        if (!tokenizer_ || tokenizer_->is_control(token)) return true;
        emit(stops_.push(stream_.push(tokenizer_->token_bytes(token))));
        return !cancelled_ && !stops_.matched();
    }
    void finish() {
        if (stops_.matched() || cancelled_) return;
        emit(stops_.push(stream_.finish()));
        emit(stops_.finish());
    }
    bool cancelled() const { return cancelled_; }

  private:
    void emit(const std::string& piece) {
        if (piece.empty() || cancelled_) return;
        text_ += piece;
        if (sink_ && !sink_(piece)) cancelled_ = true;
    }

    const std::optional<Tokenizer>& tokenizer_;
    TextStream stream_;
    StopMatcher stops_;
    const TextSink& sink_;
    std::string& text_;
    bool cancelled_ = false;
};

}  // namespace strata
