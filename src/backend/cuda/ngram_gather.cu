// Bounded by the latency of scattered reads: every row lies elsewhere.
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/stored.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

template <typename Stored>
struct GatherValue {
    op::NgramGather args;

    __device__ void operator()(std::int64_t i) const {
        const std::int64_t row = args.rows.data[i / args.table.cols];
        args.e.data[i] =
            Stored::at(args.table.data + row * args.table.row_bytes, i % args.table.cols);
    }
};

}  // namespace

void ngram_gather(const op::NgramGather& args, device::Queue& queue) {
    STRATA_CHECK(args.e.rows == args.rows.rows);
    STRATA_CHECK(args.e.cols == args.rows.cols * args.table.cols);
    with_stored(args.table.type, [&](auto stored) {
        for_each(queue, args.e.size(), GatherValue<decltype(stored)>{args});
    });
}

}  // namespace strata::cuda
