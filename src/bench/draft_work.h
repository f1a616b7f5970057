// What a draft must read, counted from its file.
#pragma once

#include <cstdint>

#include "gguf/reader.h"
#include "model/config.h"
#include "op/cache_row.h"
#include "spec/dflash/config.h"
#include "strata/bench.h"

namespace strata::bench {

// `head_bytes` are those of the target's head, for a draft that has none of its own.

// Of `guesses` guesses of a DFlash2 draft after a context of `length`: its matrices and vectors
// once, the head once, of the codebooks the rows of its candidates, what its layers see of the
// context.
BytesRead block_draft_bytes(const gguf::File& file, const dflash::Config& config,
                            op::CacheType cache, double head_bytes, std::int64_t length,
                            std::int64_t guesses);

// Of a chain of `guesses` guesses of the MTP layer in `file`: all of it for each guess, of its
// experts those of one token.
BytesRead mtp_draft_bytes(const gguf::File& file, const model::Config& config, op::CacheType cache,
                          double head_bytes, std::int64_t length, std::int64_t guesses);

}  // namespace strata::bench
