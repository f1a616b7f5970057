// Ops whose products are all that prompts do in another way.
#include "backend/cuda/either_route.h"
#include "backend/cuda/multiply.h"
#include "backend/cuda/prompt.h"
#include "base/check.h"

namespace strata::cuda::prompt {

void output_head(const op::OutputHead& args, device::Queue& queue) {
    STRATA_CHECK(args.logits.rows == args.hidden.rows && args.logits.cols == args.weight.rows);
    PromptInput x(begin_op(queue), args.hidden);
    multiply(x, args.weight, args.logits);
}

void ngram_mix(const op::NgramMix& args, device::Queue& queue) {
    ngram_mix_by(project_prompt, args, queue);
}

void mtp_fuse(const op::MtpFuse& args, device::Queue& queue) {
    mtp_fuse_by(project_prompt, args, queue);
}

void dflash_inject(const op::DflashInject& args, device::Queue& queue) {
    dflash_inject_by(project_prompt, args, queue);
}

}  // namespace strata::cuda::prompt
