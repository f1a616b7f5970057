#include "backend/cpu/instructions.h"

namespace strata::cpu {

Instructions fastest_instructions() {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("f16c")) {
        return Instructions::scalar;
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi")) {
        return Instructions::avx512;
    }
    return Instructions::avx2;
#else
    return Instructions::scalar;
#endif
}

}  // namespace strata::cpu
