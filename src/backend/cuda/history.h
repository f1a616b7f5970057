// The last rows of a stream of rows.
#pragma once

#include "backend/cuda/queue.h"

namespace strata::cuda {

// to = the last n rows of (from ++ window[0 .. rows)), n = to.rows rows in `from` too; `rows` at
// least 1. `to` may be `from`'s memory.
void advance_history(device::Queue& queue, const float* from, MatrixView<float> to,
                     MatrixView<const float> window, std::int64_t rows);

}  // namespace strata::cuda
