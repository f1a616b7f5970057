// Bounded by memory: at most n rows are copied. One thread a column, walking down it, so that
// moving rows up in place overwrites nothing that is still to be read.
#include "backend/cuda/history.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

struct ShiftColumn {
    const float* from;
    MatrixView<float> to;
    MatrixView<const float> window;
    std::int64_t rows;

    __device__ void operator()(std::int64_t column) const {
        for (std::int64_t r = 0; r < to.rows; ++r) {
            const std::int64_t at = r + rows;  // of from ++ window
            to.row(r)[column] =
                at < to.rows ? from[at * to.cols + column] : window.row(at - to.rows)[column];
        }
    }
};

}  // namespace

void advance_history(device::Queue& queue, const float* from, MatrixView<float> to,
                     MatrixView<const float> window, std::int64_t rows) {
    if (to.rows > 0) for_each(queue, to.cols, ShiftColumn{from, to, window, rows});
}

void shift_history(const op::ShiftHistory& args, device::Queue& queue) {
    STRATA_CHECK(args.history.cols == args.window.cols);
    STRATA_CHECK(args.rows >= 0 && args.rows <= args.window.rows);
    advance_history(queue, args.history.data, args.history, args.window, args.rows);
}

}  // namespace strata::cuda
