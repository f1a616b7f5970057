// Bounded by the latency of the table's pages: every row lies elsewhere.
#include "backend/cpu/kernels.h"
#include "backend/cpu/project.h"
#include "backend/cpu/queue.h"
#include "base/check.h"

namespace strata::cpu {

void ngram_gather(const op::NgramGather& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    const std::int64_t width = args.table.cols;
    STRATA_CHECK(has_shape(args.table, args.table.rows, width));
    STRATA_CHECK(args.e.rows == args.rows.rows && args.e.cols == args.rows.cols * width);
    own.split(args.rows.size(), width, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
            decode_row(args.table, args.rows.data[i], args.e.data + i * width);
        }
    });
}

}  // namespace strata::cpu
