// What recorded work is told apart by.
#pragma once

#include <cstdint>

namespace strata::model {

// Kinds of work that have a key, of all who use a target's queue.
enum class Recorded : std::int64_t { step, replay, mtp_chain, mtp_cells, block_inject, block };

// The bound of work whose rows end at `end`: at least that and at most `context`; few different
// ones.
std::int64_t bound_of(std::int64_t end, std::int64_t context);

}  // namespace strata::model
