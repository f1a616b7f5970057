#include "bench/clock.h"

#include <algorithm>

namespace strata::bench {

MachineRates better(const MachineRates& a, const MachineRates& b) {
    return {a.threads, std::max(a.read_bytes, b.read_bytes),
            std::max(a.i8_multiply_adds, b.i8_multiply_adds),
            std::max(a.bf16_multiply_adds, b.bf16_multiply_adds),
            std::max(a.f32_multiply_adds, b.f32_multiply_adds)};
}

Spread spread(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return {values[values.size() / 2], values.front(), values.back()};
}

}  // namespace strata::bench
