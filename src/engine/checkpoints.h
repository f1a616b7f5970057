// States of sequences that are kept in memory: a prompt that begins as an earlier one is not read
// from its start again.
//
// A checkpoint is the state after some tokens. What rows leave behind is kept in stretches, which
// the checkpoints of one text share, so that another one along it takes little. A checkpoint holds
// the bits that the sequence had: going on from it is going on with that sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/target.h"

namespace strata {

inline bool begins_with(std::span<const std::int32_t> whole, std::span<const std::int32_t> part) {
    return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

class Checkpoints {
  public:
    // Cells of rows first to last-1.
    struct Stretch {
        std::int64_t first = 0;
        std::int64_t last = 0;
        std::string cells;
    };
    struct Checkpoint {
        std::vector<std::int32_t> tokens;
        bool mtp = false;  // cells of the MTP layer are among them
        std::string moment;
        std::vector<std::shared_ptr<const Stretch>> stretches;  // of all rows, in order
        std::vector<float> logits;  // of the token after `tokens`; empty: not known
        std::string drafter;        // what it remembers; empty: nothing
        std::uint64_t used = 0;     // when; later is larger
    };
    // Which stretches lie in a sequence as they were saved: its rows up to the last of them.
    using Placed = std::vector<std::weak_ptr<const Stretch>>;
    // What belongs to a state besides the sequence.
    struct Beside {
        std::span<const float> logits;
        std::string drafter;
    };

    // Keeps at most so many bytes; 0: nothing.
    explicit Checkpoints(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

    bool enabled() const { return bytes_max_ > 0; }
    std::uint64_t bytes_max() const { return bytes_max_; }
    std::uint64_t bytes() const;
    std::size_t size() const { return all_.size(); }

    // The longest one that `prompt` begins with, of more than `least` tokens; one of the whole
    // prompt only with logits. Null: none. Valid until the next keep(). It counts as used.
    const Checkpoint* find(std::span<const std::int32_t> prompt, bool mtp, std::int64_t least);

    // Brings `sequence`, of the same model and options, to a checkpoint's state.
    static void restore(const Checkpoint& from, model::Target& target, model::Sequence& sequence,
                        Placed& placed);

    // Keeps the sequence's state, in the place of those longest unused where the room is wanted.
    // Nothing where it has no room, or no tokens.
    void keep(model::Target& target, model::Sequence& sequence, Placed& placed, Beside beside);

  private:
    static std::uint64_t own_bytes(const Checkpoint& one);
    // Forgets those longest unused until the sequence's state and `more` bytes have room, and
    // returns the stretches of it that are still there. False: it never has.
    bool make_room(const model::Target& target, const model::Sequence& sequence,
                   const Placed& placed, std::uint64_t more,
                   std::vector<std::shared_ptr<const Stretch>>& there);

    std::uint64_t bytes_max_;
    std::uint64_t clock_ = 0;
    std::vector<Checkpoint> all_;
};

}  // namespace strata
