// Text on its way out: whole characters only, and nothing from a stop string on.
//
// One pipeline for every caller: token bytes -> TextStream -> StopMatcher. For both classes the
// concatenated results do not depend on how the input was cut into pushes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace strata {

// Bytes in, UTF-8 text out. Bytes that form no character become U+FFFD, one for each longest
// prefix of a character that was begun (Unicode chapter 3, "maximal subparts"), as Python's
// bytes.decode('utf-8', 'replace') has it.
class TextStream {
  public:
    // The text that `bytes` completes; the start of an unfinished character is held.
    std::string push(std::string_view bytes);
    // U+FFFD where an unfinished character is held, else nothing. Afterwards the stream is as new.
    std::string finish();

  private:
    std::string held_;  // at most 3 bytes
};

// `bytes` through a TextStream in one go.
std::string to_utf8(std::string_view bytes);

// Limits on what a request may ask for.
inline constexpr std::size_t kStopStringsMax = 64;
inline constexpr std::size_t kStopStringBytesMax = 4096;

// Text in, text up to the first stop string out. Of several stops the one that is complete first
// counts; of those that are complete at the same byte the longest.
class StopMatcher {
  public:
    // Matches nothing.
    StopMatcher() = default;
    // Errors: an empty stop, one that is not UTF-8, or more or longer ones than the limits.
    static Result<StopMatcher> create(std::vector<std::string> stops);

    // What is certain to stand before a stop; a tail that may begin one is held. After a match
    // always empty.
    std::string push(std::string_view text);
    // What was held; empty after a match.
    std::string finish();
    // Index into the list given to create(), once a stop was found.
    std::optional<std::size_t> matched() const { return matched_; }

  private:
    struct Stop {
        std::string text;
        // Knuth-Morris-Pratt: fail[i] = length of the longest proper border of text[0, i + 1).
        std::vector<std::size_t> fail;
        // Bytes of `text` that the text so far ends with; never all of them between calls.
        std::size_t state = 0;
    };
    // Whether `byte` completes the stop.
    static bool advance(Stop& stop, char byte);

    std::vector<Stop> stops_;
    std::string held_;
    std::optional<std::size_t> matched_;
};

}  // namespace strata
