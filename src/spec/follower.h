// Who goes along with a sequence: sees what the model computed of each row that it keeps.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "model/target.h"

namespace strata::spec {

// Rows of a step on a sequence.
struct StepRows {
    std::int64_t first = 0;  // position of the first
    std::int64_t count = 0;
    // Rows that the sequence will have before its next draft: those of a whole prompt, of which
    // this step reads a part.
    std::int64_t end = 0;
};

class Follower {
  public:
    virtual ~Follower() = default;

    // Adds to a step what keep() needs of it.
    virtual void want(const StepRows& rows, model::StepRequest& request) = 0;

    // The sequence keeps the first rows of a step, one for each of `tokens`, at positions `first`
    // on. Called before they are committed; after an error they are not.
    virtual Status keep(std::int64_t first, std::span<const std::int32_t> tokens,
                        const model::StepResult& result) = 0;
};

}  // namespace strata::spec
