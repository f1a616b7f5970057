// The CUDA backend: device memory, a stream a queue, and kernels for the ops that it has.
#pragma once

#include <memory>

#include "base/result.h"
#include "device/device.h"
#include "op/table.h"

namespace strata::cuda {

struct DeviceOptions {
    // Scratch memory is NaN whenever an op takes it, so that a kernel that reads what none has
    // written shows. For tests.
    bool poison = false;
};

// The device of this number, as CUDA counts them. Errors: no driver, no such device.
Result<std::unique_ptr<device::Device>> make_device(int number, const DeviceOptions& options = {});

// Of the device of this number, which exists. Ops without a kernel are null.
op::Table op_table(int number);

}  // namespace strata::cuda
