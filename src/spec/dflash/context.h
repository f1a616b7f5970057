// What a draft remembers of one sequence: for every layer a ring of cells.
//
// Cells say which position they are of, so nothing has to be undone when guesses are refused, and a
// sequence whose early rows were never injected drafts from those that were.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "model/sequence.h"
#include "op/dflash_context.h"
#include "spec/dflash/config.h"

namespace strata::dflash {

// Positions that a ring holds beyond the window: a sequence can go back by so many and still draft
// as one that never went on.
inline constexpr std::int64_t kRingSlack = 16;
static_assert(kRingSlack >= model::kWindowRowsMax);  // all of a window may be refused

struct ContextOptions {
    std::int64_t context = 0;  // positions that the sequence may reach, at least 1
    op::CacheType cache = op::CacheType::f16;
};

class Context {
  public:
    // Allocates all cells, empty. Error: not enough memory.
    static Result<Context> create(const Config& config, device::Device& device,
                                  device::Queue& queue, const ContextOptions& options);

    // Bytes that create() would allocate.
    static std::uint64_t bytes(const Config& config, const ContextOptions& options);

    // The most positions that a layer's ring holds.
    static std::int64_t reach(const Config& config, std::int64_t context);

    const ContextOptions& options() const { return options_; }
    // One a layer.
    std::span<const op::DflashCells> cells() const { return cells_; }

    // What the addresses of the cells depend on: equal marks, equal addresses.
    void mark(std::vector<std::int64_t>& key) const;

    // Forgets every cell of a position from `length` on: the sequence goes back, or starts anew.
    void truncate(std::int64_t length, device::Queue& queue);

    // The cells as bytes: equal bytes mean equal drafts.
    std::string save(device::Queue& queue) const;
    // Takes the place of the cells. Error, which leaves them as they were: bytes that save() of a
    // context of the same draft and options did not write.
    Status restore(std::span<const char> saved, device::Queue& queue);

  private:
    Context() = default;

    ContextOptions options_;
    device::Device* device_ = nullptr;
    device::Buffer memory_;
    std::vector<op::DflashCells> cells_;
    std::string geometry_;
};

}  // namespace strata::dflash
