// op/streams.h: the output head, for prompts.
#include "backend/cuda/multiply.h"
#include "backend/cuda/prompt.h"
#include "base/check.h"

namespace strata::cuda::prompt {

void output_head(const op::OutputHead& args, device::Queue& queue) {
    STRATA_CHECK(args.logits.rows == args.hidden.rows && args.logits.cols == args.weight.rows);
    PromptInput x(begin_op(queue), args.hidden);
    multiply(x, args.weight, args.logits);
}

}  // namespace strata::cuda::prompt
