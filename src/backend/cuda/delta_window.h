// The heads of a gated delta net whose convolution has four taps and whose memories are 128 x 128:
// as delta_net.cu takes any through a window, with what is known before the rows asked for before
// them.
#pragma once

#include "backend/cuda/queue.h"
#include "op/delta_net.h"

namespace strata::cuda {

// The rows of a window as the products leave them, all [T, ...].
struct WindowRows {
    MatrixView<const float> u;  // [T, C]
    MatrixView<const float> b;  // [T, Hv]
    MatrixView<const float> a;
    MatrixView<float> o;  // [T, Hv*dv]: what is read of the memories
};

// Whether window_heads() takes it.
bool has_window_heads(const op::DeltaNet& args);

// Convolution, units, gates and the recurrence. Writes o, the state `to` but its history where that
// is `from`'s, and the trace.
void window_heads(Queue& queue, const op::DeltaNet& args, const WindowRows& rows);

}  // namespace strata::cuda
