#include "model/ngram_rows.h"

namespace strata::model {
namespace {

// The token `back` places before tokens[t], or -1 before the start.
std::int64_t token_at(std::span<const std::int32_t> before, std::span<const std::int32_t> tokens,
                      std::size_t t, std::size_t back) {
    if (back <= t) return tokens[t - back];
    const std::size_t further = back - t;
    return further <= before.size() ? before[before.size() - further] : -1;
}

}  // namespace

void ngram_rows(const NgramConfig& config, std::span<const std::int32_t> before,
                std::span<const std::int32_t> tokens, std::vector<std::int64_t>& rows) {
    const auto size = static_cast<std::size_t>(config.size);
    const auto heads = static_cast<std::size_t>(config.heads_per_ngram);
    rows.clear();
    for (std::size_t t = 0; t < tokens.size(); ++t) {
        std::uint64_t hash = static_cast<std::uint64_t>(tokens[t]) * config.multipliers[0];
        bool cut = false;
        for (std::size_t back = 1; back < size; ++back) {
            const std::int64_t previous = token_at(before, tokens, t, back);
            cut = cut || previous < 0 || previous == config.end_token;
            const auto id = static_cast<std::uint64_t>(cut ? config.end_token : previous);
            hash ^= id * config.multipliers[back];
            for (std::size_t h = (back - 1) * heads; h < back * heads; ++h) {
                rows.push_back(
                    static_cast<std::int64_t>(hash % config.vocabulary[h] + config.offsets[h]));
            }
        }
    }
}

}  // namespace strata::model
