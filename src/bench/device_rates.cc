#include "bench/device_rates.h"

#include <algorithm>

#include "bench/clock.h"

namespace strata::bench {
namespace {

constexpr std::size_t kBytes = std::size_t{2} << 30;
constexpr std::size_t kSmallBytes = std::size_t{1} << 20;
constexpr int kPasses = 5;
constexpr int kCopies = 8;  // a pass, submitted together

}  // namespace

Result<MachineRates> measure_device(device::Device& device, bool small) {
    const std::size_t bytes = small ? kSmallBytes : kBytes;
    STRATA_ASSIGN(const device::Buffer from, device.allocate(bytes));
    STRATA_ASSIGN(const device::Buffer to, device.allocate(bytes));
    const auto queue = device.make_queue();
    MachineRates rates;
    for (int pass = 0; pass < kPasses; ++pass) {
        const Clock clock;
        for (int i = 0; i < kCopies; ++i) device.copy(*queue, to.data(), from.data(), bytes);
        queue->wait();
        rates.read_bytes = std::max(rates.read_bytes,
                                    2.0 * kCopies * static_cast<double>(bytes) / clock.seconds());
    }
    return rates;
}

}  // namespace strata::bench
