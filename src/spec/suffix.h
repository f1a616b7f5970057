// Prompt and history lookup: what followed when the text ended before as it ends now.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "spec/drafter.h"

namespace strata::spec {

// What a guess of the suffix drafter rests on: how often the tokens before it occurred earlier, and
// how often they were followed by it.
enum class Evidence : std::uint8_t {
    differ,         // several times, with different tokens after them
    mostly,         // likewise, with the guess after two of three
    nearly,         // after four of five
    once_1,         // one token, once
    once_2,         // likewise two tokens
    once_3,         // three
    once_4,         // four or five
    once_6,         // six to nine
    once_10,        // ten to seventeen
    once_18,        // more
    twice_1,        // one token, twice, with the guess after it both times
    twice,          // likewise more tokens
    three_times_1,  // one token, three times and more, always with the guess after it
    three_times,    // likewise more tokens
    count
};
inline constexpr auto kEvidenceCount = static_cast<std::size_t>(Evidence::count);

// Shares of such guesses that were right in texts of the bundled model, of all kinds of
// bench/drafting together.
inline constexpr std::array<double, kEvidenceCount> kEvidenceShare = {
    0.30, 0.73, 0.94, 0.35, 0.58, 0.65, 0.71, 0.84, 0.86, 0.98, 0.64, 0.95, 0.88, 0.98};

// A guess is made that is at least so likely to be reached and right: of 0.3 to 0.6 it does best on
// the texts of bench/drafting.
inline constexpr double kSuffixChanceMin = 0.4;

// Guesses what followed the last time, or what followed most of the times. How far is set by how
// often the end of the text occurred before: the guesses end before the first that is too unlikely
// to be reached and right.
//
// The text is kept as a suffix automaton (Blumer et al., "The smallest automaton recognizing the
// subwords of a text", 1985). The suffix link of the whole text's state stands for the longest end
// of the text that occurred before. Occurrences are counted to a few only: who has as many stops
// the walk to shorter ends, which have no fewer. So a token costs amortized constant time and
// memory, however long the text is.
class SuffixDrafter final : public Drafter {
  public:
    SuffixDrafter() { reset(); }

    std::string_view name() const override { return "suffix"; }
    Result<Guesses> guess(const GuessRequest& request) override;
    void reset() override;

    // Takes in what `text` has grown by.
    void read(std::span<const std::int32_t> text);

    // `count` tokens that followed the earlier occurrence of match(), or most occurrences where
    // they differ, past the end of the text themselves again, and what each rests on. Empty without
    // a match.
    struct Continuation {
        std::vector<std::int32_t> tokens;
        std::vector<Evidence> evidence;
    };
    Continuation continuation(std::span<const std::int32_t> text, std::int64_t count) const {
        return continuation_after(text, {}, count);
    }
    // The same for the text with the tokens of `chain` after it, which it does not take in; in
    // bounded time, so that the earlier occurrence need not be of the longest end.
    Continuation continuation_after(std::span<const std::int32_t> text,
                                    std::span<const std::int32_t> chain, std::int64_t count) const;

    // Tokens of the text's end that occurred before, where that earlier occurrence ended, and how
    // often there was one: kTimesMax stands for more too.
    struct Match {
        std::int64_t length = 0;
        std::int64_t end = 0;
        int times = 0;
    };
    static constexpr int kTimesMax = 3;
    Match match() const;

  private:
    struct State {
        std::int32_t link = -1;
        std::int64_t length = 0;
        std::int64_t end = 0;                 // where its strings last ended, as far as is known
        int times = 0;                        // how often they occur, to kTimesMax + 1
        std::vector<std::int32_t> followers;  // tokens that it has an edge for
    };
    // The longest end of a text that occurs earlier: whose strings, how long, where it last ended.
    struct Place {
        std::int32_t state = 0;
        std::int64_t length = 0;
        std::int64_t end = 0;
        int times = 0;
    };
    Place place() const;
    // A guess and what it rests on.
    struct Next {
        std::int32_t token = 0;
        Evidence evidence = Evidence::differ;
    };
    std::optional<Next> next_of(const Place& now, std::int32_t followed) const;
    std::optional<Next> most_frequent(std::int32_t state) const;
    void follow(std::int32_t token, Place& place) const;
    static std::uint64_t edge(std::int32_t state, std::int32_t token) {
        return static_cast<std::uint64_t>(static_cast<std::uint32_t>(state)) << 32 |
               static_cast<std::uint32_t>(token);
    }
    const State& at(std::int32_t state) const { return states_[static_cast<std::size_t>(state)]; }
    State& at(std::int32_t state) { return states_[static_cast<std::size_t>(state)]; }
    std::int32_t add_state(std::int64_t length, std::int64_t end);
    void set_edge(std::int32_t from, std::int32_t token, std::int32_t to);
    std::int32_t split(std::int32_t from, std::int32_t token, std::int32_t state);
    void extend(std::int32_t token);

    std::int64_t known_ = 0;  // tokens of the text that the automaton holds
    std::int32_t last_ = 0;
    std::int64_t match_end_ = 0;
    std::vector<State> states_;
    std::unordered_map<std::uint64_t, std::int32_t> edges_;
};

}  // namespace strata::spec
