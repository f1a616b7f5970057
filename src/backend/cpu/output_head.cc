// Bounded by reading the weight, the largest matrix that every token reads whole.
#include "backend/cpu/kernels.h"
#include "backend/cpu/project.h"
#include "backend/cpu/queue.h"
#include "base/check.h"

namespace strata::cpu {

void output_head(const op::OutputHead& args, device::Queue& queue) {
    STRATA_CHECK(has_shape(args.weight, args.logits.cols, args.hidden.cols));
    STRATA_CHECK(args.logits.rows == args.hidden.rows);
    project(begin_op(queue), args.hidden, {{args.weight, args.logits}});
}

}  // namespace strata::cpu
