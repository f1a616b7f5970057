#include "backend/cuda/queue.h"

#include "base/check.h"

namespace strata::cuda {

void must(cudaError_t result, const char* file, int line) noexcept {
    if (result != cudaSuccess) check_failed(file, line, cudaGetErrorString(result));
}

Queue::Queue(int number) {
    STRATA_CUDA_MUST(cudaSetDevice(number));
    STRATA_CUDA_MUST(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

// A stream whose device is lost cannot be destroyed either, and no longer matters.
Queue::~Queue() { static_cast<void>(cudaStreamDestroy(stream_)); }

void Queue::wait() { STRATA_CUDA_MUST(cudaStreamSynchronize(stream_)); }

cudaStream_t stream_of(device::Queue& queue) { return static_cast<Queue&>(queue).stream(); }

}  // namespace strata::cuda
