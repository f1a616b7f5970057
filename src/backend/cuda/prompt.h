// The functions of the op table for chunks of prompts, where they differ from those for windows.
#pragma once

#include "device/device.h"
#include "op/table.h"

namespace strata::cuda::prompt {

void stream_read(const op::StreamRead& args, device::Queue& queue);
void delta_net(const op::DeltaNet& args, device::Queue& queue);
void sparse_attention(const op::SparseAttention& args, device::Queue& queue);
void experts(const op::Experts& args, device::Queue& queue);
void ngram_mix(const op::NgramMix& args, device::Queue& queue);
void mtp_fuse(const op::MtpFuse& args, device::Queue& queue);
void dflash_inject(const op::DflashInject& args, device::Queue& queue);
void output_head(const op::OutputHead& args, device::Queue& queue);

}  // namespace strata::cuda::prompt
