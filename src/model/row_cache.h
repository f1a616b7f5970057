// Which rows of a table are in which slot of a fixed number of them.
#pragma once

#include <cstdint>
#include <vector>

namespace strata::model {

// Rows that were used lately stay: a slot is given away by the second-chance rule, and never within
// the round in which it was used. Allocates when it is made alone.
class RowCache {
  public:
    // At least twice as many slots as a round uses.
    explicit RowCache(std::int64_t slots);

    std::int64_t slots() const { return static_cast<std::int64_t>(row_.size()); }

    void begin_round() { ++round_; }
    // The row's slot, which is used in this round from now on; -1: in none.
    std::int64_t find(std::int64_t row);
    // A slot for a row that has none, used in this round.
    std::int64_t insert(std::int64_t row);
    void clear();

  private:
    std::size_t home(std::int64_t row) const;
    void erase(std::int64_t row);

    std::vector<std::int64_t> row_;        // of each slot; -1: free
    std::vector<std::uint64_t> round_of_;  // in which a slot was used last
    std::vector<bool> used_again_;         // since the hand passed
    std::vector<std::int32_t> table_;      // hash table of slots, linear probing; -1: free
    std::size_t mask_ = 0;
    std::int64_t hand_ = 0;
    std::uint64_t round_ = 1;
};

}  // namespace strata::model
