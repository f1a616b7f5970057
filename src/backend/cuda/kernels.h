// The functions of the op table that exist on CUDA, one file each.
#pragma once

#include "device/device.h"
#include "op/table.h"

namespace strata::cuda {

void accept(const op::Accept& args, device::Queue& queue);
void delta_net(const op::DeltaNet& args, device::Queue& queue);
void delta_replay(const op::DeltaReplay& args, device::Queue& queue);
void dflash_block(const op::DflashBlock& args, device::Queue& queue);
void dflash_inject(const op::DflashInject& args, device::Queue& queue);
void dflash_select(const op::DflashSelect& args, device::Queue& queue);
void draw(const op::Draw& args, device::Queue& queue);
void embed(const op::Embed& args, device::Queue& queue);
void experts(const op::Experts& args, device::Queue& queue);
void mtp_fuse(const op::MtpFuse& args, device::Queue& queue);
void ngram_gather(const op::NgramGather& args, device::Queue& queue);
void ngram_mix(const op::NgramMix& args, device::Queue& queue);
void output_head(const op::OutputHead& args, device::Queue& queue);
void pick(const op::Pick& args, device::Queue& queue);
void shift_history(const op::ShiftHistory& args, device::Queue& queue);
void sparse_attention(const op::SparseAttention& args, device::Queue& queue);
void stream_mean(const op::StreamMean& args, device::Queue& queue);
void stream_read(const op::StreamRead& args, device::Queue& queue);

}  // namespace strata::cuda
