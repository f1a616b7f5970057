// What the numbers of a model's configuration may be at most, wherever they are read from. Above
// every model there is, and small enough that no product of two of them wraps.
#pragma once

#include <cstdint>

#include "op/experts.h"
#include "op/sparse_attention.h"

namespace strata::model {

inline constexpr std::int64_t kLayersMax = 4096;
inline constexpr std::int64_t kWidthMax = std::int64_t{1} << 24;  // vocabularies too
inline constexpr std::int64_t kContextMax = op::kContextMax;      // tokens
inline constexpr std::int64_t kExpertsMax = op::kExpertsMax;
inline constexpr std::int64_t kExpertsActiveMax = op::kExpertsActiveMax;
inline constexpr std::int64_t kStreamsMax = 256;
inline constexpr std::int64_t kKernelMax = 256;  // taps of a convolution
inline constexpr std::int64_t kNgramSizeMax = 16;
inline constexpr std::int64_t kNgramHeadsMax = 256;

}  // namespace strata::model
