// What the ops on residual streams share.
#pragma once

#include "backend/cpu/vector.h"
#include "device/tensor.h"

namespace strata::cpu {

// The streams of row t take in `out` of the block before: stream += inject * out.
struct InjectStream {
    template <typename V>
    STRATA_INLINE static void run(float* stream, float inject, const float* out,
                                  std::int64_t width) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < width; ++i) stream[i] += inject * out[i];
    }
};
inline void inject_stream(Instructions instructions, float* stream, float inject, const float* out,
                          std::int64_t width) {
    run_kernel<InjectStream>(instructions, stream, inject, out, width);
}

// Whether the block before, where there is one, fits `rows` rows of `streams` streams.
inline bool block_fits(MatrixView<const float> out, MatrixView<const float> inject,
                       std::int64_t rows, int streams, std::int64_t width) {
    return out.empty() || (out.rows == rows && out.cols == width && !inject.empty() &&
                           inject.rows == rows && inject.cols == streams);
}

}  // namespace strata::cpu
