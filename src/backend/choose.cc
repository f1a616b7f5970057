#include "backend/choose.h"

#include <utility>

#include "base/text.h"

namespace strata {
namespace {

Result<Backend> fitting_gpu(int number, const Fits& fits) {
    STRATA_ASSIGN(Backend backend, make_cuda_backend(number));
    STRATA_ASSIGN(const std::uint64_t available, backend.device->available());
    STRATA_TRY(fits(available));
    return backend;
}

}  // namespace

Result<ChosenBackend> choose_backend(const DeviceChoice& choice, int threads, const Fits& fits) {
    ChosenBackend chosen;
    const bool best = choice.kind == DeviceChoice::Kind::best;
    if (choice.kind == DeviceChoice::Kind::cuda || (best && has_cuda())) {
        auto gpu = fitting_gpu(choice.number, fits);
        if (gpu.ok()) {
            chosen.backend = std::move(gpu).value();
            chosen.gpu = true;
            return chosen;
        }
        if (!best) return gpu.error();
        chosen.note = gpu.error().message;
    }
    STRATA_ASSIGN(chosen.backend, make_cpu_backend({.threads = threads}));
    return chosen;
}

}  // namespace strata
