#include "bench/clock.h"

#include <algorithm>

#include "base/text.h"

namespace strata::bench {

MachineRates better(const MachineRates& a, const MachineRates& b) {
    return {a.threads, std::max(a.read_bytes, b.read_bytes),
            std::max(a.i8_multiply_adds, b.i8_multiply_adds),
            std::max(a.bf16_multiply_adds, b.bf16_multiply_adds),
            std::max(a.f32_multiply_adds, b.f32_multiply_adds)};
}

Error ended() { return STRATA_ERROR("the measurement was ended before it was done"); }

Spread spread(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return {values[values.size() / 2], values.front(), values.back()};
}

}  // namespace strata::bench
