#include "tests/support/rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace strata::test {

Rig::Rig(TestBackend& backend, std::string label)
    : backend_(backend),
      label_(backend.name + ", " + std::move(label)),
      queue_(backend.backend.device->make_queue()) {}

const std::byte* Rig::matrix(const char* name, const std::vector<std::byte>& bytes,
                             quant::Type type, std::int64_t cols) {
    auto own = backend_.backend.device->resident_matrix(*queue_, bytes, type, cols);
    STRATA_CHECK(own.ok());
    // A device that reads host memory has made no copy: the guarded one is to be read.
    return *own == bytes.data() ? input(name, bytes) : *own;
}

op::Weight Rig::weight(const char* name, const TestWeight& weight) {
    op::Weight own = table(name, weight);
    if (!weight.empty()) own.data = matrix(name, weight.bytes, weight.type, weight.cols);
    return own;
}

op::Weight Rig::table(const char* name, const TestWeight& weight) {
    if (weight.empty()) return {};
    return {input(name, weight.bytes), weight.type,  weight.rows, weight.cols,
            weight.row_bytes(),        weight.factor};
}

std::byte* Rig::place(const char* name, Use use, const void* values, std::size_t bytes) {
    device::Device& device = *backend_.backend.device;
    auto buffer = device.allocate(bytes + 2 * kGuardBytes);
    STRATA_CHECK(buffer.ok());
    std::vector<std::byte> image(bytes + 2 * kGuardBytes, kPoison);
    if (bytes > 0) std::memcpy(image.data() + kGuardBytes, values, bytes);
    device.upload(*queue_, buffer->data(), image);
    if (use != Use::input) image.clear();
    regions_.push_back({name, use, bytes, std::move(image), std::move(buffer).value()});
    return regions_.back().buffer.data() + kGuardBytes;
}

const Rig::Region& Rig::find(const std::byte* data) const {
    const auto found = std::find_if(regions_.begin(), regions_.end(), [&](const Region& region) {
        return region.buffer.data() + kGuardBytes == data;
    });
    STRATA_CHECK(found != regions_.end());
    return *found;
}

void Rig::download(const Region& region, std::byte* to, std::size_t from, std::size_t bytes) {
    if (bytes == 0) return;
    backend_.backend.device->download(*queue_, {to, bytes}, region.buffer.data() + from);
    queue_->wait();
}

void Rig::finish() {
    queue_->wait();
    for (const Region& region : regions_) check(region);
}

void Rig::check(const Region& region) {
    std::vector<std::byte> image(region.bytes + 2 * kGuardBytes);
    download(region, image.data(), 0, image.size());
    if (region.use == Use::input) {
        EXPECT_TRUE(image == region.before)
            << label_ << ": the op wrote to its input " << region.name;
        return;
    }
    const auto first = image.begin() + kGuardBytes;
    const auto last = first + static_cast<std::ptrdiff_t>(region.bytes);
    const auto poisoned = [](std::byte b) { return b == kPoison; };
    EXPECT_TRUE(std::all_of(image.begin(), first, poisoned))
        << label_ << ": the op wrote before the start of " << region.name;
    EXPECT_TRUE(std::all_of(last, image.end(), poisoned))
        << label_ << ": the op wrote past the end of " << region.name;
    if (region.use == Use::state) return;
    // Outputs are 4 bytes an element: F32 or I32.
    for (auto at = first; at != last; at += 4) {
        if (!std::all_of(at, at + 4, poisoned)) continue;
        ADD_FAILURE() << label_ << ": element " << (at - first) / 4 << " of " << region.name
                      << " was not written, or was made from memory outside the inputs";
        return;
    }
}

}  // namespace strata::test
