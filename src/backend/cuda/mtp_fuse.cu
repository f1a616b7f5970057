// Bounded by reading fuse: once for all rows and streams, whose embedded and hidden halves lie
// beside each other in one row of its input.
#include "backend/cuda/either_route.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/stored.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

// Row t * S + s of `embedded` gets the normed embedding of token t as its first half, that of
// `hidden` stream s of the normed residual as its second: block (half, row).
template <typename Stored>
__global__ void __launch_bounds__(kNormThreadsMax)
    join_halves(op::MtpFuse args, MatrixView<float> embedded, MatrixView<float> hidden) {
    follow_earlier_kernels();
    const std::int64_t t = blockIdx.y;
    const std::int64_t width = args.table.cols;
    auto* held = reinterpret_cast<float*>(shared_bytes());
    const std::int64_t first = t * args.streams;
    if (blockIdx.x == 0) {
        const std::byte* row = args.table.row(args.tokens[t]);
        norm_row(
            width, args.epsilon, args.norm_embedding, held,
            [&](std::int64_t c) { return Stored::at(row, c); },
            [&](std::int64_t c, float value) {
                for (int s = 0; s < args.streams; ++s) embedded.row(first + s)[c] = value;
            });
    } else {
        const float* row = args.residual.row(t);
        norm_row(
            args.residual.cols, args.epsilon, args.norm_hidden, held,
            [&](std::int64_t c) { return row[c]; },
            [&](std::int64_t c, float value) {
                hidden.row(first + c / width)[width + c % width] = value;
            });
    }
}

struct Clear {
    float* data;

    __device__ void operator()(std::int64_t i) const { data[i] = 0.0f; }
};

struct Add {
    const float* a;
    const float* b;
    float* sum;

    __device__ void operator()(std::int64_t i) const { sum[i] = a[i] + b[i]; }
};

}  // namespace

void mtp_fuse_by(Projector project_rows, const op::MtpFuse& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    const std::int64_t rows = args.tokens.size;
    const std::int64_t width = args.table.cols;
    STRATA_CHECK(args.fuse.rows == width && args.fuse.cols == 2 * width);
    STRATA_CHECK(args.residual.rows == rows && args.residual.cols == args.streams * width);
    STRATA_CHECK(args.out.rows == rows && args.out.cols == args.residual.cols);
    if (rows == 0) return;
    // A group of values that are rounded together may not reach from one half into the other: each
    // then has a row of its own, with zeros in place of the other.
    const int group = group_of(args.fuse.type);
    const bool apart = group != kPlain && width % group != 0;
    const std::int64_t all = rows * args.streams;
    const MatrixView<float> joined = own.matrix(apart ? 2 * all : all, 2 * width);
    const MatrixView<float> hidden = apart ? joined.rows_from(all, all) : joined;
    if (apart) for_each(own, joined.size(), Clear{joined.data});
    with_stored(args.table.type, [&](auto stored) {
        launch_dependent(own,
                         {dim3(2, static_cast<unsigned>(rows)), norm_threads(args.residual.cols),
                          static_cast<std::size_t>(args.residual.cols) * sizeof(float)},
                         join_halves<decltype(stored)>, args, joined.first_rows(all), hidden);
    });
    const MatrixView<float> out{args.out.data, all, width};
    const Product product{args.fuse, apart ? own.matrix(2 * all, width) : out};
    project_rows(own, joined, {&product, 1});
    if (apart) for_each(own, out.size(), Add{product.out.data, product.out.row(all), out.data});
}

void mtp_fuse(const op::MtpFuse& args, device::Queue& queue) {
    mtp_fuse_by(project_window, args, queue);
}

}  // namespace strata::cuda
