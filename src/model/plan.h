// What a model takes of a device's memory, known before anything is allocated.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "gguf/reader.h"
#include "model/config.h"
#include "model/sequence.h"

namespace strata::model {

// Bytes, each part on its own.
struct MemoryPlan {
    std::uint64_t weights = 0;
    std::uint64_t state = 0;      // of one sequence at the whole context
    std::uint64_t workspace = 0;  // of the largest step
    std::uint64_t drafter = 0;    // a draft's weights and context
    std::uint64_t reserve = 0;    // scratch of ops, captured graphs, the driver's own

    std::uint64_t all() const { return weights + state + workspace + drafter + reserve; }
};

struct PlanOptions {
    SequenceOptions sequence;
    std::int64_t rows_max = 0;             // of a step
    bool ngram_resident = false;           // the n-gram table is with the weights
    std::vector<const gguf::File*> extra;  // of drafters
    std::uint64_t drafter_context = 0;     // bytes of a block draft's cells
};

// For a device whose memory is apart from the host's.
MemoryPlan plan_memory(const gguf::File& file, const Config& config, const PlanOptions& options);

// Error: more than `available`, with every part, and the longest context that fits where one does.
Status check_plan(const gguf::File& file, const Config& config, const PlanOptions& options,
                  std::uint64_t available);

}  // namespace strata::model
