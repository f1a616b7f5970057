#include "backend/backend.h"
#include "backend/cuda/cuda.h"

namespace strata {

bool has_cuda() { return true; }

Result<Backend> make_cuda_backend(int number, bool poison) {
    STRATA_ASSIGN(auto device, cuda::make_device(number, {.poison = poison}));
    return Backend{.device = std::move(device), .ops = cuda::op_table(number)};
}

}  // namespace strata
