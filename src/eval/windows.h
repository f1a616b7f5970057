// A text's tokens, window by window.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "strata/eval.h"

namespace strata::eval {

// The tokens and window of a run. Errors: as for perplexity.
struct Text {
    std::vector<std::int32_t> tokens;
    std::int64_t window = 0;

    static Result<Text> create(const Engine& engine, std::string_view text, std::int64_t window);

    std::int64_t predictions() const { return static_cast<std::int64_t>(tokens.size()) - 1; }
    // The window whose first token is at `first`: 2 tokens or more where at least one follows.
    std::span<const std::int32_t> at(std::int64_t first) const;
};

// The logits of the tokens of one window but the last, whose prediction belongs to the next
// window: visit(i, row) gets that after window[i].
using RowVisit = std::function<Status(std::size_t i, std::span<const float> row)>;
Status visit_rows(Engine& engine, std::span<const std::int32_t> window, const RowVisit& visit);

}  // namespace strata::eval
