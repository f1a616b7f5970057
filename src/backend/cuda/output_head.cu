// Bounded by reading the weight, the largest matrix that every token reads whole.
#include "backend/cuda/kernels.h"
#include "backend/cuda/project.h"

namespace strata::cuda {

void output_head(const op::OutputHead& args, device::Queue& queue) {
    project(begin_op(queue), args.hidden, args.weight, args.logits);
}

}  // namespace strata::cuda
