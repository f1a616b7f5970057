// The functions of the op table that exist on CUDA, one file each.
#pragma once

#include "device/device.h"
#include "op/table.h"

namespace strata::cuda {

void embed(const op::Embed& args, device::Queue& queue);
void ngram_gather(const op::NgramGather& args, device::Queue& queue);
void shift_history(const op::ShiftHistory& args, device::Queue& queue);
void stream_mean(const op::StreamMean& args, device::Queue& queue);

}  // namespace strata::cuda
