// Passes over many floats, in the widest vectors that the machine has; the results do not depend on
// them.
#pragma once

#include <cstddef>
#include <span>

namespace strata {

// The sum of e^(x - from) over all x of `values` (base/exponential.h), in an order that follows
// from their number alone: sixteen sums.
double sum_of_exponentials(std::span<const float> values, float from);

// The number of the first NaN, or of values.
std::size_t first_nan(std::span<const float> values);

bool all_finite(std::span<const float> values);

// The number of the first value from the `begin`-th on that is above `least`, or of values.
std::size_t first_above(std::span<const float> values, std::size_t begin, float least);

// The number of the first of the largest, of at least one value, none a NaN.
std::size_t first_largest(std::span<const float> values);

}  // namespace strata
