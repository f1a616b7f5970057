// The CUDA backend's queue, a stream; and what a failed call of the runtime leads to.
#pragma once

#include <cuda_runtime_api.h>

#include "device/device.h"

namespace strata::cuda {

// Ends the process with CUDA's words where a call failed. For calls that fail only when the device
// is lost or a kernel broke it: the interfaces of device/device.h have no way to tell, and nothing
// that was computed can be trusted.
void must(cudaError_t result, const char* file, int line) noexcept;

class Queue final : public device::Queue {
  public:
    // On the device of this number.
    explicit Queue(int number);
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;
    ~Queue() override;

    void wait() override;
    cudaStream_t stream() const { return stream_; }

  private:
    cudaStream_t stream_ = nullptr;
};

// The stream of a queue that this backend made.
cudaStream_t stream_of(device::Queue& queue);

}  // namespace strata::cuda

#define STRATA_CUDA_MUST(call) ::strata::cuda::must((call), __FILE__, __LINE__)
