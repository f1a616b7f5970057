// Bounded by latency: one warp, a lane a row.
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

__global__ void __launch_bounds__(kWarp) accept_rows(const __grid_constant__ op::Accept args) {
    follow_earlier_kernels();
    const auto t = static_cast<int>(threadIdx.x);
    const bool goes_on = t + 1 < args.window.size && args.goes_on(t);
    const unsigned ends = ~__ballot_sync(kAllLanes, goes_on);
    if (t == 0) args.rows[0] = __ffs(static_cast<int>(ends));
}

}  // namespace

void accept(const op::Accept& args, device::Queue& queue) {
    // A lane says that no row comes after it.
    static_assert(op::kAcceptRowsMax <= kWarp);
    STRATA_CHECK(args.fits());
    launch_dependent(queue, {dim3(1), kWarp}, accept_rows, args);
}

}  // namespace strata::cuda
