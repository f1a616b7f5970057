// Where every expert lies: the one table that says so.
//
// A slot is room for the matrices of one expert in memory that the device reads. An expert lies in
// a slot or elsewhere, where no kernel can read it. The addresses that kernels go by
// (op::ExpertTable) are written from here alone and at places that stay, so that recorded work
// finds an expert wherever it was moved. An expert that lies elsewhere has null addresses, and no
// step runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "op/experts.h"

namespace strata::model {

// Where each matrix of an expert starts, stored as device::Device::resident_matrix has it. The
// table does not own the memory.
struct ExpertSlot {
    const std::byte* gate = nullptr;
    const std::byte* up = nullptr;
    const std::byte* down = nullptr;

    bool operator==(const ExpertSlot&) const = default;
};

// Movable; the device outlives it. Layers are numbered as they are added.
class Residency {
  public:
    // A layer whose expert e lies in slots[e]; `table` gets the places of its addresses, which this
    // owns. Error: no memory.
    Status add_layer(std::vector<ExpertSlot> slots, device::Device& device, device::Queue& queue,
                     op::ExpertTable& table);

    std::int64_t layers() const { return static_cast<std::int64_t>(layers_.size()); }
    // Nothing: elsewhere.
    std::optional<ExpertSlot> find(std::int64_t layer, std::int64_t expert) const;

    // From the queue's next work on the expert lies in `to`, which holds its matrices by then;
    // nothing: elsewhere.
    void move(std::int64_t layer, std::int64_t expert, const std::optional<ExpertSlot>& to,
              device::Device& device, device::Queue& queue);

    // Error: an expert lies elsewhere, and kernels read whichever a row chooses.
    Status all_in_slots() const;

  private:
    struct Layer {
        std::vector<ExpertSlot> slots;  // null addresses: elsewhere
        device::Buffer addresses;       // [3, E]: of gate, up and down matrices
    };
    const ExpertSlot& slot_of(std::int64_t layer, std::int64_t expert) const;

    std::vector<Layer> layers_;
    std::int64_t elsewhere_ = 0;  // experts
};

}  // namespace strata::model
