// The only place that names every backend.
#pragma once

#include <memory>

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
};

// The CPU backend, which every machine has. Error: a thread count outside [0, kThreadsMax].
Result<Backend> make_cpu_backend(const BackendOptions& options);

// The CUDA device of this number. Its table has no function for most ops: those are null. Errors:
// a build without CUDA, no driver, no such device.
Result<Backend> make_cuda_backend(int number);

}  // namespace strata
