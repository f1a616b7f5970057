// Ops that are the same on both routes (op/weight.h) but for their products.
#pragma once

#include <span>

#include "backend/cuda/project.h"
#include "op/table.h"

namespace strata::cuda {

// out[t] = weight . x[t] for every product, by either route.
using Projector = void (*)(Queue& queue, MatrixView<const float> x,
                           std::span<const Product> products);

inline void project_window(Queue& queue, MatrixView<const float> x,
                           std::span<const Product> products) {
    project(queue, x, products);
}
void project_prompt(Queue& queue, MatrixView<const float> x, std::span<const Product> products);

void ngram_mix_by(Projector project, const op::NgramMix& args, device::Queue& queue);
void mtp_fuse_by(Projector project, const op::MtpFuse& args, device::Queue& queue);
// `project` null: by the products of draft_rows.h.
void dflash_inject_by(Projector project, const op::DflashInject& args, device::Queue& queue);

}  // namespace strata::cuda
