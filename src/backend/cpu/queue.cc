#include "backend/cpu/queue.h"

#include <algorithm>
#include <new>

#include "base/memory.h"
#include "base/text.h"

namespace strata::cpu {
namespace {

constexpr std::size_t kFirstBlock = std::size_t{1} << 20;
constexpr std::align_val_t kAlignment{device::kBufferAlignment};

std::size_t aligned(std::size_t bytes) {
    return (bytes + device::kBufferAlignment - 1) / device::kBufferAlignment *
           device::kBufferAlignment;
}

}  // namespace

Arena::~Arena() { free_blocks(); }

void Arena::reset() {
    if (blocks_.size() > 1) {
        // With room for ops that want a little more each time, as a context grows.
        const std::size_t all = taken_ + taken_ / 4;
        free_blocks();
        taken_ = 0;
        add_block(all);
    }
    used_ = 0;
    taken_ = 0;
}

std::byte* Arena::take(std::size_t bytes) {
    const std::size_t size = aligned(bytes);
    if (blocks_.empty() || blocks_.back().bytes - used_ < size) {
        add_block(std::max({size, taken_, kFirstBlock}));
    }
    std::byte* data = blocks_.back().data + used_;
    used_ += size;
    taken_ += size;
    return data;
}

void Arena::add_block(std::size_t bytes) {
    used_ = 0;
    Block& block = blocks_.emplace_back();  // empty where the machine has no memory left
    block.data = static_cast<std::byte*>(::operator new(bytes, kAlignment));
    block.bytes = bytes;
}

void Arena::free_blocks() {
    for (const Block& block : blocks_) ::operator delete(block.data, kAlignment);
    blocks_.clear();
}

Status Queue::status() const {
    if (!failed_) return Ok{};
    return STRATA_ERROR("not enough memory: an op was given none for what it takes while it runs; ",
                        memory_left());
}

Queue& begin_op(device::Queue& queue) {
    auto& own = static_cast<Queue&>(queue);
    own.arena_.reset();
    return own;
}

}  // namespace strata::cpu
