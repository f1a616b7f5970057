// Bounded by reading fuse: once for all rows and streams, whose embedded and hidden halves lie
// beside each other in one row of its input.
#include "backend/cuda/either_route.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/stored.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = 1024;

// Row t * S + s of `joined` gets the normed embedding of token t, then stream s of the normed
// residual: block (half, row).
template <typename Stored>
__global__ void __launch_bounds__(kThreads)
    join_halves(op::MtpFuse args, MatrixView<float> joined) {
    follow_earlier_kernels();
    const std::int64_t t = blockIdx.y;
    const std::int64_t width = args.table.cols;
    auto* held = reinterpret_cast<float*>(shared_bytes());
    float* to = joined.row(t * args.streams);
    if (blockIdx.x == 0) {
        const std::byte* row = args.table.row(args.tokens[t]);
        norm_row<kThreads>(
            width, args.epsilon, args.norm_embedding, held,
            [&](std::int64_t c) { return Stored::at(row, c); },
            [&](std::int64_t c, float value) {
                for (int s = 0; s < args.streams; ++s) to[s * joined.cols + c] = value;
            });
    } else {
        const float* row = args.residual.row(t);
        norm_row<kThreads>(
            args.residual.cols, args.epsilon, args.norm_hidden, held,
            [&](std::int64_t c) { return row[c]; },
            [&](std::int64_t c, float value) {
                to[c / width * joined.cols + width + c % width] = value;
            });
    }
}

}  // namespace

void mtp_fuse_by(Projector project_rows, const op::MtpFuse& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    const std::int64_t rows = args.tokens.size;
    const std::int64_t width = args.table.cols;
    STRATA_CHECK(args.fuse.rows == width && args.fuse.cols == 2 * width);
    STRATA_CHECK(args.residual.rows == rows && args.residual.cols == args.streams * width);
    STRATA_CHECK(args.out.rows == rows && args.out.cols == args.residual.cols);
    if (rows == 0) return;
    const MatrixView<float> joined = own.matrix(rows * args.streams, 2 * width);
    with_stored(args.table.type, [&](auto stored) {
        launch_dependent(own,
                         {dim3(2, static_cast<unsigned>(rows)), kThreads,
                          static_cast<std::size_t>(args.residual.cols) * sizeof(float)},
                         join_halves<decltype(stored)>, args, joined);
    });
    const Product product{args.fuse, {args.out.data, rows * args.streams, width}};
    project_rows(own, joined, {&product, 1});
}

void mtp_fuse(const op::MtpFuse& args, device::Queue& queue) {
    mtp_fuse_by(project_window, args, queue);
}

}  // namespace strata::cuda
