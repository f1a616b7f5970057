// Bounded by memory: reads the residual once. The streams are added in the order of the host's
// kernel, so the two agree to the bit.
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

struct MeanValue {
    op::StreamMean args;
    float share;

    __device__ void operator()(std::int64_t i) const {
        const std::int64_t width = args.mean.cols;
        const std::int64_t t = i / width;
        const std::int64_t c = i % width;
        const float* from = args.residual.data + t * args.residual.cols + c;
        float sum = 0.0f;
        for (int s = 0; s < args.streams; ++s) {
            float value = from[s * width];
            if (args.block_out.data != nullptr) {
                value += args.block_inject.data[t * args.streams + s] * args.block_out.data[i];
            }
            sum += value;
        }
        const std::int64_t row = args.mean_row_at == nullptr ? t : t + *args.mean_row_at;
        args.mean.data[row * args.stride() + c] = sum * share;
    }
};

}  // namespace

void stream_mean(const op::StreamMean& args, device::Queue& queue) {
    STRATA_CHECK(args.residual.rows == args.mean.rows);
    STRATA_CHECK(args.residual.cols == args.streams * args.mean.cols);
    for_each(queue, args.mean.size(), MeanValue{args, 1.0f / static_cast<float>(args.streams)});
}

}  // namespace strata::cuda
