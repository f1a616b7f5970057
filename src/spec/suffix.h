// Prompt and history lookup: what followed the last time that the text ended as it ends now.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "spec/drafter.h"

namespace strata::spec {

// Guesses as many tokens as the repeated end of the text is long: a long match tends to go on.
//
// The text is kept as a suffix automaton (Blumer et al., "The smallest automaton recognizing the
// subwords of a text", 1985). The suffix link of the whole text's state stands for the longest end
// of the text that occurred before, so a token costs amortized constant time and memory, however
// long the text is.
class SuffixDrafter final : public Drafter {
  public:
    // Ends shorter than `match_min` tokens are chance.
    explicit SuffixDrafter(std::int64_t match_min = 2) : match_min_(match_min) { reset(); }

    std::string_view name() const override { return "suffix"; }
    Result<Guesses> guess(const GuessRequest& request) override;
    void reset() override;

    // Takes in what `text` has grown by.
    void read(std::span<const std::int32_t> text);
    // What followed the earlier occurrence of match(), `count` tokens of it.
    std::vector<std::int32_t> continuation(std::span<const std::int32_t> text,
                                           std::int64_t count) const;

    // Tokens of the text's end that occurred before, and where that earlier occurrence ended.
    struct Match {
        std::int64_t length = 0;
        std::int64_t end = 0;
    };
    Match match() const { return match_; }

  private:
    struct State {
        std::int32_t link = -1;
        std::int64_t length = 0;
        std::int64_t end = 0;                 // where its strings last ended, as far as is known
        std::vector<std::int32_t> followers;  // tokens that it has an edge for
    };
    static std::uint64_t edge(std::int32_t state, std::int32_t token) {
        return static_cast<std::uint64_t>(static_cast<std::uint32_t>(state)) << 32 |
               static_cast<std::uint32_t>(token);
    }
    std::int32_t add_state(std::int64_t length, std::int64_t end);
    void set_edge(std::int32_t from, std::int32_t token, std::int32_t to);
    std::int32_t split(std::int32_t from, std::int32_t token, std::int32_t state);
    void extend(std::int32_t token);

    std::int64_t match_min_;
    std::int64_t known_ = 0;  // tokens of the text that the automaton holds
    std::int32_t last_ = 0;
    Match match_;
    std::vector<State> states_;
    std::unordered_map<std::uint64_t, std::int32_t> edges_;
};

}  // namespace strata::spec
