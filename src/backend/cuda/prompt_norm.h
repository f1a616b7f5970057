// The first pass of a stream read over the residual of a prompt (op/stream_read.h).
#pragma once

#include "backend/cuda/multiply.h"
#include "op/stream_read.h"

namespace strata::cuda::prompt {

inline constexpr int kNormedStreamsMax = 4;

struct Normed {
    RoundedRows rows;           // [T, S*D]: X
    MatrixView<float> inverse;  // [T, S]: 1 / rms
    RoundedRows inject_weight;  // [S, S*D]; no data: none
    float inject_factor = 1;
};

// Writes back what the block before made, norms all streams, and makes `inject`. S is at most
// kNormedStreamsMax.
Normed norm_streams(Queue& queue, const op::StreamRead& args);

}  // namespace strata::cuda::prompt
