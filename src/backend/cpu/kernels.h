// The functions of the op table, one file each.
#pragma once

#include "device/device.h"
#include "op/table.h"

namespace strata::cpu {

#define STRATA_OP(name, Args) void name(const op::Args& args, device::Queue& queue);
#include "op/ops.def"
#undef STRATA_OP

}  // namespace strata::cpu
