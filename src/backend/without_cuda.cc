#include "backend/backend.h"
#include "base/text.h"

namespace strata {

bool has_cuda() { return false; }

Result<Backend> make_cuda_backend(int number, bool) {
    return STRATA_ERROR("CUDA device ", number,
                        " was asked for, and this is a build without CUDA, wanted one with "
                        "STRATA_CUDA");
}

}  // namespace strata
