// Bounded by memory: at most n rows are copied. One thread a column, walking down it, so that
// moving rows up in place overwrites nothing that is still to be read.
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

struct ShiftColumn {
    op::ShiftHistory args;

    __device__ void operator()(std::int64_t column) const {
        const std::int64_t n = args.history.rows;
        const std::int64_t cols = args.history.cols;
        float* history = args.history.data + column;
        const float* window = args.window.data + column;
        for (std::int64_t r = 0; r < n; ++r) {
            const std::int64_t from = r + args.rows;  // of history ++ window
            history[r * cols] = from < n ? history[from * cols] : window[(from - n) * cols];
        }
    }
};

}  // namespace

void shift_history(const op::ShiftHistory& args, device::Queue& queue) {
    STRATA_CHECK(args.history.cols == args.window.cols);
    STRATA_CHECK(args.rows >= 0 && args.rows <= args.window.rows);
    for_each(queue, args.history.cols, ShiftColumn{args});
}

}  // namespace strata::cuda
