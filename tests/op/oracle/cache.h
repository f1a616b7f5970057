// op/cache_row.h in plain steps.
#pragma once

#include <cstddef>
#include <vector>

#include "op/cache_row.h"
#include "tests/support/compare.h"

namespace strata::test {

inline constexpr op::CacheType kCacheTypes[] = {op::CacheType::f16, op::CacheType::f32,
                                                op::CacheType::q8_0};
std::string name_of(op::CacheType type);

// The bytes of a row of [G, d] values.
std::vector<std::byte> cache_row_oracle(const op::CacheRow& shape,
                                        const std::vector<float>& values);

// The [G, d] values that the row at `bytes` is read as.
std::vector<float> cached_values(const op::CacheRow& shape, const std::byte* bytes);

// Whether a row holds poison where something was to be written. Bytes of q8_0 may be any: poison
// in their scales counts.
bool holds_poison(const op::CacheRow& shape, const std::byte* bytes);

// That stored rows are `want` as the type may round it; bytes are judged group by group.
void expect_cached(const std::string& what, const op::CacheRow& shape,
                   const std::vector<float>& got, const Rows& want);

}  // namespace strata::test
