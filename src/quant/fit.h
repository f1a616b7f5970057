// What encoders share: a block made ready, and the scale (and offset) that fit it best. Everything
// is deterministic and holds for any floats: a block with a NaN or an infinity encodes to a NaN
// scale, and a scale beyond f16 to the largest one.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace strata::quant {

// A TypeInfo's encode and encode_weighted from a function that encodes one block; its importance is
// null where all values count alike.
template <typename Block, int kValues, Block (*kEncodeBlock)(const float*, const float*)>
void encode_blocks_weighted(const float* in, const float* importance, std::byte* row,
                            std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += kValues, row += sizeof(Block)) {
        const Block block = kEncodeBlock(in + i, importance == nullptr ? nullptr : importance + i);
        std::memcpy(row, &block, sizeof(Block));
    }
}

template <typename Block, int kValues, Block (*kEncodeBlock)(const float*, const float*)>
void encode_blocks(const float* in, std::byte* row, std::int64_t n) {
    encode_blocks_weighted<Block, kValues, kEncodeBlock>(in, nullptr, row, n);
}

// Fills x with `in` divided by its largest magnitude, which it returns: not finite where a value is
// not, and x is 0 then and where all of `in` is. w gets weights of mean 1, all above 0.
float prepare(const float* in, const float* importance, std::span<float> x, std::span<float> w);

// Values of a block and their weights, as `prepare` makes them.
template <int kValues>
struct Prepared {
    Prepared(const float* in, const float* importance) : largest(prepare(in, importance, x, w)) {}

    // The f16 of a scale of x, as a scale of the values.
    std::uint16_t stored(float scale) const;
    // What a stored scale is for x.
    float effective(std::uint16_t half) const;

    std::array<float, kValues> x;
    std::array<float, kValues> w;
    float largest;
};

std::uint16_t stored_scale(float scale, float largest);
float effective_scale(std::uint16_t half, float largest);

template <int kValues>
std::uint16_t Prepared<kValues>::stored(float scale) const {
    return stored_scale(scale, largest);
}

template <int kValues>
float Prepared<kValues>::effective(std::uint16_t half) const {
    return effective_scale(half, largest);
}

// The nearest integer in [low, high]; low for a NaN. Halves round up.
inline int nearest_in(float value, int low, int high) {
    const auto first = static_cast<float>(low);
    const auto last = static_cast<float>(high);
    const float above = value > first ? value : first;
    const float within = above < last ? above : last;
    return low + static_cast<int>(within - first + 0.5f);
}

inline float inverse_of(float scale) {
    const float inverse = 1.0f / scale;
    return std::isfinite(inverse) ? inverse : 0.0f;
}

// Where a search begins and ends: what the largest magnitude becomes in units of the scale.
struct FitRange {
    float first;
    float last;
    int steps;
    bool both_signs;  // whether a negative scale may fit better, the levels being lopsided
};

// Sums that do not wait for each other; blocks and their parts are multiples of this.
inline constexpr std::size_t kLanes = 4;

// The scale for which the sum of w * (x - scale * level)^2 is least among those that the range
// gives, where level_of(x / scale) is the nearest level; for given levels the scale is the least
// squares one.
template <typename LevelOf>
float fit_scale(std::span<const float> x, std::span<const float> w, const FitRange& range,
                const LevelOf& level_of) {
    float largest = 0.0f;
    for (const float value : x) largest = std::fmax(largest, std::fabs(value));
    if (!(largest > 0.0f)) return 0.0f;
    float best = 0.0f;
    float best_score = 0.0f;
    const auto attempt = [&](float inverse) {
        std::array<float, kLanes> products{};
        std::array<float, kLanes> squares{};
        for (std::size_t i = 0; i < x.size(); i += kLanes) {
            for (std::size_t j = 0; j < kLanes; ++j) {
                const float level = level_of(x[i + j] * inverse);
                const float weighted = w[i + j] * level;
                products[j] += weighted * x[i + j];
                squares[j] += weighted * level;
            }
        }
        const float product = (products[0] + products[1]) + (products[2] + products[3]);
        const float square = (squares[0] + squares[1]) + (squares[2] + squares[3]);
        if (product * product > best_score * square) {
            best = product / square;
            best_score = product * product / square;
        }
    };
    const float step = (range.last - range.first) / static_cast<float>(range.steps - 1);
    for (int i = 0; i < range.steps; ++i) {
        const float inverse = (range.first + step * static_cast<float>(i)) / largest;
        attempt(inverse);
        if (range.both_signs) attempt(-inverse);
    }
    attempt(inverse_of(best));
    return best;
}

// scale * code + base, code in [0, levels].
struct Affine {
    float scale = 0.0f;
    float base = 0.0f;
};

// The scale of 0 or more and the base that fit best; the base is at most 0 if `below_zero`.
Affine fit_affine(std::span<const float> x, std::span<const float> w, int levels, bool below_zero);

}  // namespace strata::quant
