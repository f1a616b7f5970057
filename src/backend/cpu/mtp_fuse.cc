// Bounded by reading fuse.
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/project.h"
#include "backend/cpu/queue.h"
#include "base/check.h"

namespace strata::cpu {

void mtp_fuse(const op::MtpFuse& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    const std::int64_t rows = args.tokens.size;
    const std::int64_t width = args.table.cols;
    STRATA_CHECK(has_shape(args.table, args.table.rows, width));
    STRATA_CHECK(has_shape(args.fuse, width, 2 * width));
    STRATA_CHECK(args.residual.rows == rows && args.residual.cols == args.streams * width);
    STRATA_CHECK(args.out.rows == rows && args.out.cols == args.residual.cols);

    const MatrixView<float> token = own.matrix(rows, width);
    const MatrixView<float> hidden = own.matrix(rows, args.residual.cols);
    own.split(rows, 3 * (width + hidden.cols), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            decode_row(args.table, args.tokens[t], token.row(t));
            rms_norm(own.instructions(), token.row(t), args.norm_embedding, width, args.epsilon,
                     token.row(t));
            rms_norm(own.instructions(), args.residual.row(t), args.norm_hidden, hidden.cols,
                     args.epsilon, hidden.row(t));
        }
    });

    const MatrixView<float> embedded = own.matrix(rows, width);
    project(own, token, {{args.fuse, embedded}});
    project(own, {hidden.data, rows * args.streams, width},
            {{args.fuse, {args.out.data, rows * args.streams, width}, width}});
    own.split(rows, args.out.cols, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            for (int s = 0; s < args.streams; ++s) {
                float* out = args.out.row(t) + s * width;
                for (std::int64_t i = 0; i < width; ++i) out[i] += embedded.row(t)[i];
            }
        }
    });
}

}  // namespace strata::cpu
