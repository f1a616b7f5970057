// What a model takes of memory, known before anything is allocated, and the context that fits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/reader.h"
#include "model/config.h"
#include "model/sequence.h"

namespace strata::model {

// Bytes, each part on its own.
struct MemoryPlan {
    std::uint64_t weights = 0;  // without an n-gram table that is read row by row
    std::uint64_t state = 0;    // of one sequence at the whole context
    // Of the largest step; where the model runs on the host, kept rows of the n-gram table too.
    std::uint64_t workspace = 0;
    std::uint64_t drafter = 0;  // a draft's weights, context and workspace
    std::uint64_t reserve = 0;  // scratch of ops, and what the system's own parts take
    // States kept for later prompts (engine/checkpoints). Always in the host's memory.
    std::uint64_t checkpoints = 0;

    // What has to be where the model runs, checkpoints left out.
    std::uint64_t all() const;
};

// What the files of a run hold.
struct FileSizes {
    std::string name;               // of the model's file, in errors
    std::uint64_t weights = 0;      // weight_bytes()
    std::uint64_t ngram_table = 0;  // 0: none
    std::uint64_t drafters = 0;     // all of their tensors
};

FileSizes file_sizes(const gguf::File& file, const Config& config,
                     const std::vector<const gguf::File*>& drafters);

// Memory that may be taken.
struct MemoryRoom {
    std::uint64_t host = 0;
    std::optional<std::uint64_t> device;  // where the model runs on memory of its own
    // Whether that is what someone set (--ram, --vram), there being more.
    bool host_is_set = false;
    bool device_is_set = false;
};

// The shortest context that is taken without asking, or the trained length where that is less, and
// what a shortened one is a multiple of. A person may ask for any.
inline constexpr std::int64_t kContextLeast = 1024;
inline constexpr std::int64_t kContextStep = 256;

// Recurrent states that checkpoints have room for beside one of the whole context.
inline constexpr std::uint64_t kMomentsWanted = 16;

struct PlanOptions {
    SequenceOptions sequence;       // at the longest context that is wanted
    bool may_shrink = false;        // a shorter one is as well
    std::int64_t rows_max = 0;      // of a step
    bool ngram_resident = false;    // the n-gram table is copied to the device
    std::uint64_t ngram_cache = 0;  // bytes of its rows to keep
    // Bytes that a block draft takes beside its tensors; empty: no draft.
    std::function<std::uint64_t(std::int64_t context)> drafter_context;
    // Bytes of checkpoints; nothing: one state of the whole context at least, and kMomentsWanted
    // recurrent states more where there is room.
    std::optional<std::uint64_t> checkpoints;
};

// The plan of options.sequence.context, with checkpoints at their least.
MemoryPlan plan_memory(const FileSizes& files, const Config& config, const PlanOptions& options,
                       const MemoryRoom& room);

struct Fit {
    std::int64_t context = 0;
    MemoryPlan plan;
    std::string note;  // one sentence where the context is shorter than was wanted, else empty
};

// Error: it does not fit, with every part, and what would: the longest context where one does, else
// what can be done without.
Result<Fit> fit_memory(const FileSizes& files, const Config& config, const PlanOptions& options,
                       const MemoryRoom& room);

}  // namespace strata::model
