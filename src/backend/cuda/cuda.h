// The CUDA backend: device memory, a stream a queue, and kernels for the ops that it has.
#pragma once

#include <chrono>
#include <memory>

#include "base/result.h"
#include "device/device.h"
#include "op/table.h"

namespace strata::cuda {

// The longest work that the host waits for, a chunk of a prompt, takes a small part of it.
inline constexpr std::chrono::seconds kWaitLimit{60};

struct DeviceOptions {
    // Scratch memory is NaN whenever an op takes it, so that a kernel that reads what none has
    // written shows. For tests.
    bool poison = false;
    // After so long a wait the device has failed.
    std::chrono::milliseconds wait_limit = kWaitLimit;
};

// The device of this number, as CUDA counts them. Errors: no driver, no such device.
//
// It fails where a kernel reads what it may not, the hardware says so, or work does not end within
// the limit; device::Queue says what is known of it then. Work that never ends holds the device:
// what would wait for it is left undone, and its memory is free when the process has ended.
Result<std::unique_ptr<device::Device>> make_device(int number, const DeviceOptions& options = {});

// Of the device of this number, which exists. Ops without a kernel are null.
op::Table op_table(int number);

}  // namespace strata::cuda
