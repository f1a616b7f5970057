// What the memory of a device reaches.
#pragma once

#include "device/device.h"
#include "strata/bench.h"

namespace strata::bench {

// Of a device with memory of its own: the best of several copies within it, bytes read and written.
// `small` as measure_machine's. Error: no memory for the two buffers.
Result<MachineRates> measure_device(device::Device& device, bool small);

}  // namespace strata::bench
