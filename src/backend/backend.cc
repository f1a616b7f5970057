#include "backend/backend.h"

#include "backend/cpu/cpu.h"
#include "base/text.h"
#include "base/thread_pool.h"

namespace strata {

Result<Backend> make_cpu_backend(const BackendOptions& options) {
    if (options.threads < 0 || options.threads > kThreadsMax) {
        return STRATA_ERROR("the thread count is ", options.threads, ", wanted 1 to ", kThreadsMax,
                            ", or 0 for all cores");
    }
    const cpu::Instructions fastest = cpu::fastest_instructions();
    const cpu::Instructions instructions = options.instructions.value_or(fastest);
    if (instructions > fastest) {
        return STRATA_ERROR("this machine lacks the instructions of set ",
                            static_cast<int>(instructions), ", wanted at most set ",
                            static_cast<int>(fastest));
    }
    const int threads = options.threads == 0 ? available_threads() : options.threads;
    return Backend{.device = cpu::make_device({threads, instructions, options.poison}),
                   .ops = cpu::op_table()};
}

}  // namespace strata
