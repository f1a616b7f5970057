#include "backend/cpu/kernels.h"
#include "base/check.h"

namespace strata::cpu {

void accept(const op::Accept& args, device::Queue&) {
    STRATA_CHECK(args.window.size >= 1);
    STRATA_CHECK(args.picked.empty() != args.drawn.empty());
    STRATA_CHECK(args.ends.size <= op::kEndTokensMax);
    args.rows[0] = args.count();
}

}  // namespace strata::cpu
