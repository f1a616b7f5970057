// A drafter that is told what will come.
#pragma once

#include <cstdint>
#include <utility>

#include "spec/drafter.h"
#include "tests/model/tiny_target.h"
#include "tests/support/random.h"

namespace strata::test {

// Knows the text that will come and is right, wrong, or either.
class ScriptedDrafter final : public spec::Drafter {
  public:
    enum class Kind { right, wrong, random, end_tokens, sometimes };
    ScriptedDrafter(Kind kind, Tokens future, std::int64_t vocabulary)
        : kind_(kind), future_(std::move(future)), vocabulary_(vocabulary), random_("drafter") {}

    std::string_view name() const override { return "scripted"; }
    Result<spec::Guesses> guess(const spec::GuessRequest& request) override {
        const std::int64_t count = request.count;
        Tokens guesses;
        ++calls_;
        for (std::int64_t i = 0; i < count; ++i) {
            const auto at = request.text.size() + static_cast<std::size_t>(i);
            const std::int32_t right = at < future_.size() ? future_[at] : 0;
            guesses.push_back(guess_for(right));
        }
        // Windows with and without guesses in turn, and of every length.
        if (kind_ == Kind::sometimes) {
            guesses.resize(static_cast<std::size_t>(calls_ % (count + 1)));
        }
        return spec::Guesses{guesses, {}, 0};
    }

  private:
    std::int32_t guess_for(std::int32_t right) {
        const auto other = static_cast<std::int32_t>((right + 1) % vocabulary_);
        switch (kind_) {
            case Kind::wrong:
                return other;
            case Kind::random:
                return random_.integer(0, 1) == 0 ? right : other;
            case Kind::end_tokens:
                return 7;
            default:
                return right;
        }
    }

    Kind kind_;
    Tokens future_;
    std::int64_t vocabulary_;
    Random random_;
    std::int64_t calls_ = 0;
};

}  // namespace strata::test
