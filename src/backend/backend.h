// The only place that names every backend.
#pragma once

#include <memory>
#include <optional>

#include "backend/cpu/instructions.h"
#include "base/result.h"
#include "device/device.h"
#include "op/table.h"

namespace strata {

// A device and the kernels that run on it.
struct Backend {
    std::unique_ptr<device::Device> device;
    op::Table ops;
};

struct BackendOptions {
    int threads = 0;  // 0: all cores that this process may use
    // Nothing: the fastest that the machine has. Tests ask for the others.
    std::optional<cpu::Instructions> instructions = std::nullopt;
    bool poison = false;  // as cpu::DeviceOptions says
};

// The CPU backend, which every machine has. Errors: a thread count outside [0, kThreadsMax];
// instructions that the machine has not.
Result<Backend> make_cpu_backend(const BackendOptions& options);

// Whether this build has a CUDA backend.
bool has_cuda();

// The CUDA device of this number; `poison`: as cuda::DeviceOptions says. Errors: a build without
// CUDA, no driver, no such device.
Result<Backend> make_cuda_backend(int number, bool poison = false);

}  // namespace strata
