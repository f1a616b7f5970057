#include "spec/dflash/waiting.h"

#include <span>

#include "base/check.h"

namespace strata::dflash {

Result<Waiting> Waiting::create(device::Device& device, device::Queue& queue, std::int64_t width,
                                std::int64_t capacity) {
    Waiting waiting;
    waiting.device_ = &device;
    waiting.queue_ = &queue;
    waiting.width_ = width;
    waiting.capacity_ = capacity;
    const auto bytes = static_cast<std::size_t>(width * capacity) * sizeof(float);
    STRATA_ASSIGN(waiting.memory_, device.allocate(bytes));
    return waiting;
}

bool Waiting::make_room(std::int64_t position, std::int64_t count) {
    if (count_ == 0) return count <= capacity_;
    if (position != end() || count_ + count > capacity_) return false;
    if (begin_ + count_ + count <= capacity_) return true;
    if (count_ > begin_) return false;  // they would be moved onto themselves
    device_->copy(*queue_, memory_.data(), reinterpret_cast<const std::byte*>(row(begin_)),
                  static_cast<std::size_t>(count_ * width_) * sizeof(float));
    begin_ = 0;
    return true;
}

void Waiting::append(std::int64_t position, MatrixView<const float> rows) {
    STRATA_CHECK(rows.cols == width_ && end_row() + rows.rows <= capacity_);
    device_->upload(*queue_, reinterpret_cast<std::byte*>(row(end_row())),
                    std::as_bytes(std::span(rows.data, static_cast<std::size_t>(rows.size()))));
    add(position, rows.rows);
}

void Waiting::add(std::int64_t position, std::int64_t count) {
    STRATA_CHECK(count_ == 0 || position == end());
    STRATA_CHECK(end_row() + count <= capacity_);
    if (count_ == 0) first_ = position;
    count_ += count;
}

void Waiting::drop(std::int64_t count) {
    begin_ += count;
    first_ += count;
    count_ -= count;
    if (count_ == 0) begin_ = 0;
}

}  // namespace strata::dflash
