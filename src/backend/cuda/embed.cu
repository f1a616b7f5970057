// Bounded by memory: one table row read and S rows written a token.
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/stored.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

template <typename Stored>
struct EmbedValue {
    op::Embed args;

    __device__ void operator()(std::int64_t i) const {
        const std::int64_t width = args.table.cols;
        const std::int64_t t = i / width;
        const std::int64_t c = i % width;
        const std::int64_t token = args.tokens.data[t];
        const float value = Stored::at(args.table.data + token * args.table.row_bytes, c);
        float* to = args.residual.data + t * args.residual.cols + c;
        for (int s = 0; s < args.streams; ++s) to[s * width] = value;
    }
};

}  // namespace

void embed(const op::Embed& args, device::Queue& queue) {
    STRATA_CHECK(args.residual.rows == args.tokens.size);
    STRATA_CHECK(args.residual.cols == args.streams * args.table.cols);
    with_stored(args.table.type, [&](auto stored) {
        for_each(queue, args.tokens.size * args.table.cols, EmbedValue<decltype(stored)>{args});
    });
}

}  // namespace strata::cuda
