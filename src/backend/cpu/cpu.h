// The CPU backend: host memory, a thread pool, and kernels for every op.
#pragma once

#include <memory>

#include "backend/cpu/instructions.h"
#include "device/device.h"
#include "op/table.h"

namespace strata::cpu {

// `threads` >= 1 run each op together. The machine must have `instructions`.
std::unique_ptr<device::Device> make_device(int threads, Instructions instructions);

op::Table op_table();

}  // namespace strata::cpu
