// Bounded by memory: one table row read and S rows written a token.
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/project.h"
#include "backend/cpu/queue.h"
#include "base/check.h"

namespace strata::cpu {

void embed(const op::Embed& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    const std::int64_t width = args.table.cols;
    STRATA_CHECK(has_shape(args.table, args.table.rows, width));
    STRATA_CHECK(args.residual.rows == args.tokens.size);
    STRATA_CHECK(args.residual.cols == args.streams * width);
    own.split(args.tokens.size, args.residual.cols, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            float* first = args.residual.row(t);
            decode_row(args.table, args.tokens[t], first);
            for (int s = 1; s < args.streams; ++s) {
                std::memcpy(first + s * width, first,
                            static_cast<std::size_t>(width) * sizeof(float));
            }
        }
    });
}

}  // namespace strata::cpu
