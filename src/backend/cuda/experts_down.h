// The last step of experts for windows in the formats of rows.h: one launch from the hidden rows to
// y.
#pragma once

#include "backend/cuda/contract.h"

namespace strata::cuda {

// Whether launch_down_rows() has the formats and shapes.
bool has_down_rows(const Contraction& args);

// As launch_contraction(), for arguments that has_down_rows().
void launch_down_rows(Queue& queue, const Contraction& args);

}  // namespace strata::cuda
