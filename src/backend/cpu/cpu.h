// The CPU backend: host memory, a thread pool, and kernels for every op.
#pragma once

#include <memory>

#include "backend/cpu/queue.h"
#include "device/device.h"
#include "op/table.h"

namespace strata::cpu {

std::unique_ptr<device::Device> make_device(const DeviceOptions& options);

op::Table op_table();

}  // namespace strata::cpu
