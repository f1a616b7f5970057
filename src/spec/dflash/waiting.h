// Rows of features that wait to be put into a draft's context, in the device's memory.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "device/tensor.h"
#include "model/target.h"

namespace strata::dflash {

class Waiting {
  public:
    // Room for `capacity` rows of `width` values. Error: not enough memory.
    static Result<Waiting> create(device::Device& device, device::Queue& queue, std::int64_t width,
                                  std::int64_t capacity);

    std::int64_t count() const { return count_; }
    std::int64_t capacity() const { return capacity_; }
    // Positions of the first row and after the last.
    std::int64_t first() const { return first_; }
    std::int64_t end() const { return first_ + count_; }
    MatrixView<const float> rows() const { return {row(begin_), count_, width_}; }

    // Whether rows at `position` on follow those that wait, and there is room for `count` of them.
    // Moves the rows where that makes the room.
    bool make_room(std::int64_t position, std::int64_t count);
    // Adds rows of the host that make_room() said yes to.
    void append(std::int64_t position, MatrixView<const float> rows);
    // Where the next rows are to lie, for who writes them; the first `count` are then added.
    model::FeaturePlace next() const {
        return {{memory_.as<float>(), capacity_, width_}, end_row()};
    }
    void add(std::int64_t position, std::int64_t count);
    // Forgets the first `count` rows.
    void drop(std::int64_t count);
    void clear() { drop(count_); }

  private:
    Waiting() = default;
    float* row(std::int64_t r) const { return memory_.as<float>() + r * width_; }
    std::int64_t end_row() const { return begin_ + count_; }

    device::Device* device_ = nullptr;
    device::Queue* queue_ = nullptr;
    device::Buffer memory_;
    std::int64_t width_ = 0;
    std::int64_t capacity_ = 0;
    std::int64_t begin_ = 0;  // row of the first
    std::int64_t count_ = 0;
    std::int64_t first_ = 0;
};

}  // namespace strata::dflash
