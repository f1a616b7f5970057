#include "convert/ngram_hash.h"

#include <limits>

#include "base/text.h"

namespace strata::convert {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
std::uint64_t splitmix64(std::uint64_t x) {
    x += kGolden;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

bool is_prime(std::uint64_t n) {
    if (n < 4) return n >= 2;
    if (n % 2 == 0) return false;
    for (std::uint64_t d = 3; d <= n / d; d += 2) {
        if (n % d == 0) return false;
    }
    return true;
}

}  // namespace

Status derive_hash(std::uint64_t vocabulary_size, std::uint64_t base, std::uint64_t seed,
                   model::NgramConfig& ngram) {
    const std::uint64_t largest = std::numeric_limits<std::int64_t>::max();
    const std::uint64_t half = largest / vocabulary_size / 2;
    if (half == 0) {
        return STRATA_ERROR("the vocabulary has ", vocabulary_size,
                            " tokens, wanted fewer so that n-gram hashes fit 63 bits");
    }
    ngram.multipliers.clear();
    ngram.vocabulary.clear();
    ngram.offsets.clear();
    for (int i = 0; i < ngram.size; ++i) {
        const auto step = static_cast<std::uint64_t>(i) + 1;
        ngram.multipliers.push_back(2 * (splitmix64(seed + kGolden * step) % half) + 1);
    }
    std::uint64_t candidate = base;
    std::uint64_t offset = 0;
    for (int head = 0; head < ngram.heads(); ++head) {
        while (!is_prime(candidate)) ++candidate;
        ngram.vocabulary.push_back(candidate);
        ngram.offsets.push_back(offset);
        offset += candidate++;
    }
    return Ok{};
}

}  // namespace strata::convert
