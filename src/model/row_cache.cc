#include "model/row_cache.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace strata::model {
namespace {

constexpr std::int64_t kNone = -1;

}  // namespace

RowCache::RowCache(std::int64_t slots) {
    STRATA_CHECK(slots >= 1 && slots <= INT32_MAX);
    const auto count = static_cast<std::size_t>(slots);
    row_.assign(count, kNone);
    round_of_.assign(count, 0);
    used_again_.assign(count, false);
    table_.assign(std::bit_ceil(2 * count), static_cast<std::int32_t>(kNone));
    mask_ = table_.size() - 1;
}

std::size_t RowCache::home(std::int64_t row) const {
    // Neighbours in the table are no neighbours here: the high bits of a product with an odd number
    // near 2^64 / golden ratio.
    constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;
    return static_cast<std::size_t>(static_cast<std::uint64_t>(row) * kFactor >> 32) & mask_;
}

std::int64_t RowCache::find(std::int64_t row) {
    for (std::size_t i = home(row); table_[i] != kNone; i = (i + 1) & mask_) {
        const auto slot = static_cast<std::size_t>(table_[i]);
        if (row_[slot] != row) continue;
        used_again_[slot] = true;
        round_of_[slot] = round_;
        return table_[i];
    }
    return kNone;
}

std::int64_t RowCache::insert(std::int64_t row) {
    for (std::int64_t passed = 0;; ++passed) {
        STRATA_CHECK(passed <= 2 * slots());
        const auto slot = static_cast<std::size_t>(hand_);
        hand_ = (hand_ + 1) % slots();
        if (row_[slot] != kNone && round_of_[slot] == round_) continue;
        if (row_[slot] != kNone && used_again_[slot]) {
            used_again_[slot] = false;
            continue;
        }
        if (row_[slot] != kNone) erase(row_[slot]);
        row_[slot] = row;
        round_of_[slot] = round_;
        used_again_[slot] = false;
        std::size_t i = home(row);
        while (table_[i] != kNone) i = (i + 1) & mask_;
        table_[i] = static_cast<std::int32_t>(slot);
        return static_cast<std::int64_t>(slot);
    }
}

// Entries behind the one that goes move up where they may, so that probing needs no tombstones.
void RowCache::erase(std::int64_t row) {
    std::size_t hole = home(row);
    while (row_[static_cast<std::size_t>(table_[hole])] != row) hole = (hole + 1) & mask_;
    for (std::size_t i = (hole + 1) & mask_; table_[i] != kNone; i = (i + 1) & mask_) {
        const std::size_t wanted = home(row_[static_cast<std::size_t>(table_[i])]);
        if (((i - wanted) & mask_) >= ((i - hole) & mask_)) {
            table_[hole] = table_[i];
            hole = i;
        }
    }
    table_[hole] = static_cast<std::int32_t>(kNone);
}

void RowCache::clear() {
    std::fill(row_.begin(), row_.end(), kNone);
    std::fill(table_.begin(), table_.end(), static_cast<std::int32_t>(kNone));
}

}  // namespace strata::model
