// Every backend in the build, in each configuration whose results must agree.
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"

namespace strata::test {

struct TestBackend {
    std::string name;  // "cpu, 3 threads"
    std::string kind;  // backends of one kind agree bit for bit
    Backend backend;
};

// Made on first use, kept until the process ends. The first of a kind is its reference.
std::vector<TestBackend>& backends();

// The CUDA backend among them; null where there is none.
TestBackend* cuda_backend();

// Another of the same device, whose scratch memory is NaN before every op.
Result<Backend> poisoned_cuda_backend();

// After `launches` more kernels that device fails; negative: it is well again. False where the
// device cannot be made to fail, which only the emulated one can.
bool fail_cuda_after(int launches);

// From now on that device has so much shared memory for a block of threads. False as above.
bool limit_cuda_shared_bytes(std::size_t bytes);

}  // namespace strata::test
