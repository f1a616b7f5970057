// The draw from few candidates of which all are at hand.
#pragma once

#include <cstdint>

#include "op/dflash_select.h"

namespace strata::cpu {

// Which candidate of row i the rule draws, by its scores and the picks of the rows before, all of
// which are there.
std::int64_t draw_candidate(const op::DflashSelect& args, std::int64_t i);

}  // namespace strata::cpu
