// The constants of the n-gram table's hash, for checkpoints that do not store them.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "model/config.h"

namespace strata::convert {

inline constexpr std::uint64_t kHashSeedDefault = 1234;

// Fills multipliers, vocabulary and offsets of `ngram` (size and heads_per_ngram are set) as the
// reference does (model.md 1.2), for the model's first table:
//   multipliers[i] = 2 (splitmix64(seed + G (i + 1)) mod half) + 1, where G = 0x9E3779B97F4A7C15
//   and half = floor(floor((2^63 - 1) / vocabulary) / 2);
//   vocabulary: the first heads() primes from `base` on; offsets: their exclusive prefix sums.
// vocabulary_size >= 1, base in [2, 2^40]. Error: so large a vocabulary that half is 0.
Status derive_hash(std::uint64_t vocabulary_size, std::uint64_t base, std::uint64_t seed,
                   model::NgramConfig& ngram);

}  // namespace strata::convert
