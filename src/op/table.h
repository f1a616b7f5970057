// The vocabulary of ops as a table that each backend fills in.
#pragma once

#include "device/device.h"
#include "op/accept.h"
#include "op/delta_net.h"
#include "op/dflash_block.h"
#include "op/dflash_context.h"
#include "op/dflash_select.h"
#include "op/draw.h"
#include "op/experts.h"
#include "op/ngram.h"
#include "op/pick.h"
#include "op/sparse_attention.h"
#include "op/stream_read.h"
#include "op/streams.h"

namespace strata::op {

// One function an op, submitting it to a queue of the backend's own device. The views in the
// arguments need to live until the call returns; the memory they show, until the queue has run the
// op.
struct Table {
#define STRATA_OP(name, Args) void (*name)(const Args&, device::Queue&) = nullptr;
#include "op/ops.def"
#undef STRATA_OP
    // The functions for chunks of prompts, where they are others: products there follow the prompt
    // route of op/weight.h. Null: these, and row t of a chunk has the bits it would have alone.
    const Table* prompts = nullptr;

    const Table& for_prompts() const { return prompts == nullptr ? *this : *prompts; }
};

}  // namespace strata::op
