#pragma once

#include <cstdint>

namespace strata::op {

// Rows of a window of T rows that stay, from the first on: 1 <= rows <= T.
struct KeptRows {
    std::int64_t rows = 0;
    // Where given, how many they are stands here when the op runs, 1 <= *told <= T, and `rows` = T:
    // what all of them leave is in place by then, so that for as many nothing is done. In memory
    // that the op's device reads.
    const std::int64_t* told = nullptr;

    // When the op runs: by how many rows it moves a state on; 0: nothing is to be done.
    constexpr std::int64_t wanted() const {
        if (told == nullptr) return rows;
        return *told == rows ? 0 : *told;
    }
    // Whether they are rows of a window of `window` rows.
    constexpr bool fit(std::int64_t window) const {
        return rows >= 1 && rows <= window && (told == nullptr || rows == window);
    }
};

}  // namespace strata::op
