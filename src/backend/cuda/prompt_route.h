// Which experts the rows of a prompt go to, and the rows in the order of their experts.
#pragma once

#include "backend/cuda/queue.h"
#include "op/experts.h"

namespace strata::cuda::prompt {

// Rows of one expert that a block multiplies: a member is a pair of a row and one of its experts,
// and those of an expert lie one after another.
struct GroupTile {
    std::int32_t expert;
    std::int32_t member;  // the first
};

struct Routing {
    MatrixView<std::int32_t> chosen;  // [T, k]
    MatrixView<float> share;          // [T, k]
    float* shared_share = nullptr;    // [T]
    std::int32_t* first = nullptr;    // [E + 1]: the members of expert e from first[e] on
    std::int32_t* row = nullptr;      // [T * k]: of a member
    std::int32_t* member = nullptr;   // [T, k]: of a pair
    GroupTile* tiles = nullptr;       // [tiles_max]
    std::int32_t* tile_count = nullptr;
    int tile_rows = 0;
    std::int64_t tiles_max = 0;  // what any choice leads to at most
};

// `logits` [T, E + 1] as the products give them: those of the experts, then of the shared one's
// scale.
Routing route(Queue& queue, const op::Experts& args, MatrixView<const float> logits, int tile_rows);

}  // namespace strata::cuda::prompt
