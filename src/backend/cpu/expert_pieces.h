// How the work of several matrices is cut into pieces that threads share.
#pragma once

#include <algorithm>
#include <cstdint>

namespace strata::cpu {

// What the nets' matrices are divided into: a net's pieces and their work follow those of the nets
// before it.
struct Division {
    std::int64_t* first_piece;  // [nets + 1]
    std::int64_t* first_cost;   // [nets + 1]
    std::int64_t nets;

    // The first piece that starts with `cost` of all work done, or later.
    std::int64_t piece_at(std::int64_t cost) const {
        const std::int64_t net = place(first_cost, cost);
        if (net == nets) return first_piece[nets];
        const std::int64_t pieces = first_piece[net + 1] - first_piece[net];
        const std::int64_t all = first_cost[net + 1] - first_cost[net];
        return first_piece[net] + (cost - first_cost[net]) * pieces / all;
    }
    std::int64_t net_of(std::int64_t piece) const { return place(first_piece, piece); }

    // The last net that starts with `at` or before; `nets` where all of them do.
    std::int64_t place(const std::int64_t* starts, std::int64_t at) const {
        const std::int64_t* all = starts;
        return std::upper_bound(all, all + nets + 1, at) - all - 1;
    }
};

}  // namespace strata::cpu
