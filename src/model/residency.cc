#include "model/residency.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace strata::model {
namespace {

// In the order of the addresses of a layer.
constexpr const std::byte* ExpertSlot::*kMatrices[] = {&ExpertSlot::gate, &ExpertSlot::up,
                                                       &ExpertSlot::down};
constexpr std::size_t kMatrixCount = std::size(kMatrices);

bool is_slot(const ExpertSlot& slot) {
    return slot.gate != nullptr && slot.up != nullptr && slot.down != nullptr;
}

}  // namespace

Status Residency::add_layer(std::vector<ExpertSlot> slots, device::Device& device,
                            device::Queue& queue, op::ExpertTable& table) {
    const std::size_t count = slots.size();
    STRATA_CHECK(count > 0 && std::all_of(slots.begin(), slots.end(), is_slot));
    Layer layer;
    STRATA_ASSIGN(layer.addresses,
                  device.allocate(kMatrixCount * count * sizeof(const std::byte*)));
    std::vector<const std::byte*> addresses;
    for (const auto matrix : kMatrices) {
        for (const ExpertSlot& slot : slots) addresses.push_back(slot.*matrix);
    }
    device.upload(queue, layer.addresses.data(), std::as_bytes(std::span(addresses)));
    const auto* const at = layer.addresses.as<const std::byte*>();
    table.gate_at = at;
    table.up_at = at + count;
    table.down_at = at + 2 * count;
    table.count = static_cast<std::int64_t>(count);
    layer.slots = std::move(slots);
    layers_.push_back(std::move(layer));
    return Ok{};
}

const ExpertSlot& Residency::slot_of(std::int64_t layer, std::int64_t expert) const {
    STRATA_CHECK(layer >= 0 && layer < layers());
    const std::vector<ExpertSlot>& slots = layers_[static_cast<std::size_t>(layer)].slots;
    STRATA_CHECK(expert >= 0 && expert < std::ssize(slots));
    return slots[static_cast<std::size_t>(expert)];
}

std::optional<ExpertSlot> Residency::find(std::int64_t layer, std::int64_t expert) const {
    const ExpertSlot& slot = slot_of(layer, expert);
    return is_slot(slot) ? std::optional(slot) : std::nullopt;
}

void Residency::move(std::int64_t layer, std::int64_t expert, const std::optional<ExpertSlot>& to,
                     device::Device& device, device::Queue& queue) {
    STRATA_CHECK(!to || is_slot(*to));
    elsewhere_ += (to ? 0 : 1) - (find(layer, expert) ? 0 : 1);
    Layer& all = layers_[static_cast<std::size_t>(layer)];
    ExpertSlot& slot = all.slots[static_cast<std::size_t>(expert)];
    slot = to.value_or(ExpertSlot{});
    std::byte* at =
        all.addresses.data() + static_cast<std::size_t>(expert) * sizeof(const std::byte*);
    for (const auto matrix : kMatrices) {
        device.upload(queue, at, std::as_bytes(std::span(&(slot.*matrix), 1)));
        at += all.slots.size() * sizeof(const std::byte*);
    }
}

Status Residency::all_in_slots() const {
    if (elsewhere_ == 0) return Ok{};
    const auto has_all = [](const Layer& layer) {
        return std::all_of(layer.slots.begin(), layer.slots.end(), is_slot);
    };
    const auto layer = std::find_if_not(layers_.begin(), layers_.end(), has_all);
    const auto expert = std::find_if_not(layer->slots.begin(), layer->slots.end(), is_slot);
    return STRATA_ERROR("expert ", expert - layer->slots.begin(), " of layer ",
                        layer - layers_.begin(), " is outside the memory that the device reads, ",
                        "one of ", elsewhere_, ", wanted 0");
}

}  // namespace strata::model
