// Each pass is written once, in loops that vectorize, and compiled for several sets of
// instructions.
#include "base/scan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/exponential.h"

namespace strata {
namespace {

#define STRATA_INLINED [[gnu::always_inline]] static inline

constexpr std::int32_t kMagnitudeBits = 0x7fffffff;
constexpr std::int32_t kInfinity = 0x7f800000;

struct SumOfExponentials {
    STRATA_INLINED double run(std::span<const float> values, float from) {
        constexpr std::size_t kSums = 16;
        float sums[kSums] = {};
        std::size_t i = 0;
        for (; i + kSums <= values.size(); i += kSums) {
            for (std::size_t j = 0; j < kSums; ++j) sums[j] += exponential(values[i + j] - from);
        }
        double all = 0;
        for (const float one : sums) all += static_cast<double>(one);
        for (; i < values.size(); ++i) all += static_cast<double>(exponential(values[i] - from));
        return all;
    }
};

// Of magnitudes' bits, which order them, NaN last.
struct LargestMagnitude {
    STRATA_INLINED std::int32_t run(std::span<const float> values) {
        std::int32_t most = 0;
        for (const float value : values) {
            most = std::max(most, std::bit_cast<std::int32_t>(value) & kMagnitudeBits);
        }
        return most;
    }
};

// The bits of floats to integers of the same order, and back.
STRATA_INLINED std::int32_t in_order(std::int32_t bits) {
    return bits ^ (bits >> 31 & kMagnitudeBits);
}

struct FirstLargest {
    STRATA_INLINED std::size_t run(std::span<const float> values) {
        std::int32_t most = std::numeric_limits<std::int32_t>::min();
        for (const float value : values) {
            most = std::max(most, in_order(std::bit_cast<std::int32_t>(value)));
        }
        // +0 and -0 have places of their own and are as large.
        const auto largest = std::bit_cast<float>(in_order(most));
        constexpr std::size_t kBlock = 256;
        std::size_t i = 0;
        for (; i + kBlock <= values.size(); i += kBlock) {
            int equal = 0;
            for (std::size_t j = 0; j < kBlock; ++j) equal |= values[i + j] == largest ? 1 : 0;
            if (equal != 0) break;
        }
        while (values[i] != largest) ++i;
        return i;
    }
};

struct FirstAbove {
    STRATA_INLINED std::size_t run(std::span<const float> values, std::size_t begin, float least) {
        constexpr std::size_t kBlock = 64;
        std::size_t i = begin;
        for (; i + kBlock <= values.size(); i += kBlock) {
            int above = 0;
            for (std::size_t j = 0; j < kBlock; ++j) above |= values[i + j] > least ? 1 : 0;
            if (above != 0) break;
        }
        while (i < values.size() && !(values[i] > least)) ++i;
        return i;
    }
};

#if defined(__x86_64__)

template <typename Pass, typename... Args>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] auto run_avx512(
    Args... args) {
    return Pass::run(args...);
}

template <typename Pass, typename... Args>
[[gnu::target("avx2")]] auto run_avx2(Args... args) {
    return Pass::run(args...);
}

#endif

template <typename Pass, typename... Args>
auto run_widest(Args... args) {
#if defined(__x86_64__)
    static const bool avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    static const bool avx2 = __builtin_cpu_supports("avx2");
    if (avx512) return run_avx512<Pass>(args...);
    if (avx2) return run_avx2<Pass>(args...);
#endif
    return Pass::run(args...);
}

}  // namespace

double sum_of_exponentials(std::span<const float> values, float from) {
    return run_widest<SumOfExponentials>(values, from);
}

std::size_t first_nan(std::span<const float> values) {
    if (run_widest<LargestMagnitude>(values) <= kInfinity) return values.size();
    const auto is_nan = [](float value) { return std::isnan(value); };
    return static_cast<std::size_t>(std::ranges::find_if(values, is_nan) - values.begin());
}

bool all_finite(std::span<const float> values) {
    return run_widest<LargestMagnitude>(values) < kInfinity;
}

std::size_t first_above(std::span<const float> values, std::size_t begin, float least) {
    return run_widest<FirstAbove>(values, begin, least);
}

std::size_t first_largest(std::span<const float> values) {
    return run_widest<FirstLargest>(values);
}

}  // namespace strata
