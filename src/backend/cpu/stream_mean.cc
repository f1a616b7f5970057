// Bounded by memory: reads the residual once.
#include "backend/cpu/kernels.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/streams.h"
#include "base/check.h"

namespace strata::cpu {

void stream_mean(const op::StreamMean& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    const std::int64_t width = args.mean.cols;
    const bool inject = !args.block_out.empty();
    STRATA_CHECK(args.residual.rows == args.mean.rows);
    STRATA_CHECK(args.residual.cols == args.streams * width);
    STRATA_CHECK(
        block_fits(args.block_out, args.block_inject, args.mean.rows, args.streams, width));
    const float share = 1.0f / static_cast<float>(args.streams);
    own.split(args.mean.rows, args.residual.cols, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            float* mean = args.mean.data + t * args.stride();
            for (std::int64_t i = 0; i < width; ++i) mean[i] = 0.0f;
            for (int s = 0; s < args.streams; ++s) {
                const float* from = args.residual.row(t) + s * width;
                if (inject) {
                    const float* out = args.block_out.row(t);
                    const float scale = args.block_inject.row(t)[s];
                    for (std::int64_t i = 0; i < width; ++i) mean[i] += from[i] + scale * out[i];
                } else {
                    for (std::int64_t i = 0; i < width; ++i) mean[i] += from[i];
                }
            }
            for (std::int64_t i = 0; i < width; ++i) mean[i] *= share;
        }
    });
}

}  // namespace strata::cpu
