// The fused ways through op StreamRead.
#pragma once

#include "backend/cuda/queue.h"
#include "op/stream_read.h"

namespace strata::cuda {

// Whether its weights and widths are those of the fused way.
bool reads_streams_fused(const op::StreamRead& args);

// Two launches: down with all that comes before, up with all that comes after.
void stream_read_fused(const op::StreamRead& args, Queue& queue);

// The same of the way for weights in BF16, or in Q8_0, on tensor cores.
bool reads_streams_by_tiles(const op::StreamRead& args, const Queue& queue);
void stream_read_tiles(const op::StreamRead& args, Queue& queue);

}  // namespace strata::cuda
