#include "quant/grid_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/fit.h"

namespace strata::quant {
namespace {

constexpr int kScaleSteps = 9;
constexpr int kPartCodeMax = 15;

// The sums that a scale s leaves of a choice of codes: its error is that of zeros, minus
// 2 * s * product, plus s^2 * square.
struct Sums {
    float product = 0.0f;
    float square = 0.0f;

    float error(float scale) const { return scale * (scale * square - 2.0f * product); }
    void add(const Sums& other, float factor = 1.0f) {
        product += factor * other.product;
        square += factor * factor * other.square;
    }
};

// What is known of the values before any scale is.
struct Values {
    std::array<float, kSuperBlock> magnitude;
    std::array<float, kSuperBlock> weight;
    std::array<float, kSuperBlock> pull;  // 2 * weight * magnitude
    std::array<std::uint8_t, kGroups> negative;
};

Values split(const Prepared<kSuperBlock>& prepared) {
    Values values{};
    for (int i = 0; i < kSuperBlock; ++i) {
        values.magnitude[i] = std::fabs(prepared.x[i]);
        values.weight[i] = prepared.w[i];
        values.pull[i] = 2.0f * prepared.w[i] * values.magnitude[i];
        const int negative = std::signbit(prepared.x[i]) ? 1 : 0;
        values.negative[i / kGroup] |= static_cast<std::uint8_t>(negative << i % kGroup);
    }
    return values;
}

template <std::size_t kWidth, std::size_t kCount>
class Fitter {
  public:
    Fitter(const GridIndex<kWidth, kCount>& index, const GridFormat& format, const Values& values)
        : index_(index), format_(format), values_(values) {}

    // The scale that fits a part best, whatever four bits can say.
    float scale_of(int part);
    // Codes of a part for a scale.
    Sums encode_part(int part, float scale);

    GridCodes codes{};

  private:
    static constexpr int kVectors = kGroup / static_cast<int>(kWidth);  // of a group

    struct Choice {
        int number = 0;
        float cost = std::numeric_limits<float>::infinity();
    };
    // As the signs are, and with one of them the wrong way.
    struct Choices {
        Choice kept;
        Choice flipped;
    };

    Choices nearest(int first, float scale, bool flip) const;
    int cheapest_flip(int first, int number) const;
    Sums encode_group(int group, float scale);

    const GridIndex<kWidth, kCount>& index_;
    const GridFormat& format_;
    const Values& values_;
};

template <std::size_t kWidth, std::size_t kCount>
typename Fitter<kWidth, kCount>::Choices Fitter<kWidth, kCount>::nearest(int first, float scale,
                                                                         bool flip) const {
    const float inverse = inverse_of(scale);
    std::array<float, kWidth> scaled;
    std::array<float, kWidth> weight;
    for (std::size_t j = 0; j < kWidth; ++j) {
        scaled[j] = values_.magnitude[first + j] * inverse;
        weight[j] = values_.weight[first + j] * scale;
    }
    const float* pull = values_.pull.data() + first;
    Choices best;
    for (const std::uint16_t number : index_.near(scaled)) {
        const auto& vector = index_.vector(number);
        float cost = 0.0f;
        for (std::size_t j = 0; j < kWidth; ++j) {
            cost += (weight[j] * vector[j] - pull[j]) * vector[j];
        }
        if (cost < best.kept.cost) best.kept = {number, cost};
        if (!flip) continue;
        float least = pull[0] * vector[0];
        for (std::size_t j = 1; j < kWidth; ++j) least = std::min(least, pull[j] * vector[j]);
        if (cost + 2.0f * least < best.flipped.cost) best.flipped = {number, cost + 2.0f * least};
    }
    return best;
}

template <std::size_t kWidth, std::size_t kCount>
int Fitter<kWidth, kCount>::cheapest_flip(int first, int number) const {
    const auto& vector = index_.vector(number);
    std::size_t best = 0;
    for (std::size_t j = 1; j < kWidth; ++j) {
        if (values_.pull[first + j] * vector[j] < values_.pull[first + best] * vector[best]) {
            best = j;
        }
    }
    return static_cast<int>(best);
}

template <std::size_t kWidth, std::size_t kCount>
Sums Fitter<kWidth, kCount>::encode_group(int group, float scale) {
    const int first = group * kGroup;
    std::uint32_t signs = values_.negative[group];
    const bool flip = format_.even && std::popcount(signs) % 2 != 0;
    std::array<Choices, kVectors> choices;
    int flipped = 0;  // the vector to which the wrong sign costs least
    for (int v = 0; v < kVectors; ++v) {
        choices[v] = nearest(first + v * static_cast<int>(kWidth), scale, flip);
        const auto price = [](const Choices& c) { return c.flipped.cost - c.kept.cost; };
        if (price(choices[v]) < price(choices[flipped])) flipped = v;
    }
    Sums sums;
    for (int v = 0; v < kVectors; ++v) {
        const int at = first + v * static_cast<int>(kWidth);
        const bool here = flip && v == flipped;
        const int number = here ? choices[v].flipped.number : choices[v].kept.number;
        const auto& vector = index_.vector(number);
        for (std::size_t j = 0; j < kWidth; ++j) {
            sums.product += 0.5f * values_.pull[at + j] * vector[j];
            sums.square += values_.weight[at + j] * vector[j] * vector[j];
        }
        if (here) {
            const int j = cheapest_flip(at, number);
            sums.product -= values_.pull[at + j] * vector[j];
            signs ^= 1u << (at - first + j);
        }
        codes.numbers[at / static_cast<int>(kWidth)] = static_cast<std::uint16_t>(number);
    }
    codes.signs[group] = static_cast<std::uint8_t>(signs);
    return sums;
}

template <std::size_t kWidth, std::size_t kCount>
Sums Fitter<kWidth, kCount>::encode_part(int part, float scale) {
    const int groups = format_.part_values / kGroup;
    Sums sums;
    for (int g = part * groups; g < (part + 1) * groups; ++g) sums.add(encode_group(g, scale));
    return sums;
}

template <std::size_t kWidth, std::size_t kCount>
float Fitter<kWidth, kCount>::scale_of(int part) {
    const float* magnitude = values_.magnitude.data() + part * format_.part_values;
    const float largest = *std::max_element(magnitude, magnitude + format_.part_values);
    if (!(largest > 0.0f)) return 0.0f;
    float best = 0.0f;
    float best_error = 0.0f;
    const auto attempt = [&](float scale) {
        const Sums sums = encode_part(part, scale);
        if (!(sums.product > 0.0f)) return;
        const float fit = sums.product / sums.square;
        if (!(sums.error(fit) < best_error)) return;
        best = fit;
        best_error = sums.error(fit);
    };
    const float step = (format_.last - format_.first) / (kScaleSteps - 1);
    for (int i = 0; i < kScaleSteps; ++i) {
        attempt(largest / (format_.first + step * static_cast<float>(i)));
    }
    attempt(largest / index_.lowest());  // fits values that are all alike
    attempt(best);
    return best;
}

float factor_of(int code) { return static_cast<float>(2 * code + 1); }

}  // namespace

template <std::size_t kWidth, std::size_t kCount>
GridIndex<kWidth, kCount>::GridIndex(const Grid<kWidth, kCount>& grid) {
    std::array<bool, 128> used{};
    for (const auto& vector : grid) {
        auto& own = vectors_.emplace_back();
        for (std::size_t j = 0; j < kWidth; ++j) {
            own[j] = static_cast<float>(vector.values[j]);
            used[static_cast<std::size_t>(vector.values[j])] = true;
        }
    }
    for (std::size_t i = 0; i < used.size(); ++i) {
        if (used[i]) levels_.push_back(static_cast<float>(i));
    }
    std::size_t cells = 1;
    for (std::size_t j = 0; j < kWidth; ++j) cells *= levels_.size();
    near_.resize(cells);
    std::vector<std::pair<float, std::uint16_t>> distances(kCount);
    for (std::size_t cell = 0; cell < cells; ++cell) {
        std::array<float, kWidth> center;
        for (std::size_t j = 0, rest = cell; j < kWidth; ++j, rest /= levels_.size()) {
            center[j] = levels_[rest % levels_.size()];
        }
        for (std::size_t i = 0; i < kCount; ++i) {
            float distance = 0.0f;
            for (std::size_t j = 0; j < kWidth; ++j) {
                const float off = vectors_[i][j] - center[j];
                distance += off * off;
            }
            distances[i] = {distance, static_cast<std::uint16_t>(i)};
        }
        std::ranges::nth_element(distances, distances.begin() + kNear);
        for (std::size_t i = 0; i < kNear; ++i) near_[cell][i] = distances[i].second;
    }
}

// The levels are a step apart but for the last, which is near enough.
template <std::size_t kWidth, std::size_t kCount>
const std::array<std::uint16_t, GridIndex<kWidth, kCount>::kNear>& GridIndex<kWidth, kCount>::near(
    const std::array<float, kWidth>& magnitudes) const {
    const float inverse = 1.0f / (levels_[1] - levels_[0]);
    const auto levels = static_cast<int>(levels_.size());
    int cell = 0;
    for (std::size_t j = kWidth; j-- > 0;) {
        cell = cell * levels + nearest_in((magnitudes[j] - levels_[0]) * inverse, 0, levels - 1);
    }
    return near_[cell];
}

template <std::size_t kWidth, std::size_t kCount>
GridCodes fit_grid(const GridIndex<kWidth, kCount>& index, const GridFormat& format,
                   const float* in, const float* importance) {
    const Prepared<kSuperBlock> prepared(in, importance);
    const Values values = split(prepared);
    Fitter<kWidth, kCount> fitter(index, format, values);
    const int parts = kSuperBlock / format.part_values;
    std::array<float, kSuperBlock / 16> scales{};
    for (int p = 0; p < parts; ++p) scales[p] = fitter.scale_of(p);
    float unit = *std::ranges::max_element(scales) / factor_of(kPartCodeMax);
    const auto code_for = [&](int part) {
        return nearest_in((scales[part] * inverse_of(unit) - 1.0f) * 0.5f, 0, kPartCodeMax);
    };
    // With every part's code chosen, the unit that fits all of them.
    Sums sums;
    for (int p = 0; p < parts; ++p) {
        const float factor = factor_of(code_for(p));
        sums.add(fitter.encode_part(p, unit * factor), factor);
    }
    if (sums.product > 0.0f) unit = sums.product / sums.square;
    const std::uint16_t stored = prepared.stored(unit / format.unit);
    unit = prepared.effective(stored) * format.unit;
    for (int p = 0; p < parts; ++p) {
        const int near = code_for(p);
        float best = std::numeric_limits<float>::infinity();
        int chosen = near;
        for (int code = std::max(near - 1, 0); code <= std::min(near + 1, kPartCodeMax); ++code) {
            const float scale = unit * factor_of(code);
            const float error = fitter.encode_part(p, scale).error(scale);
            if (!(error < best)) continue;
            best = error;
            chosen = code;
        }
        fitter.encode_part(p, unit * factor_of(chosen));
        fitter.codes.parts[p] = static_cast<std::uint8_t>(chosen);
    }
    fitter.codes.scale = stored;
    return fitter.codes;
}

template class GridIndex<8, 256>;
template class GridIndex<8, 512>;
template class GridIndex<8, 1024>;
template class GridIndex<4, 256>;
template class GridIndex<4, 512>;
template GridCodes fit_grid(const GridIndex<8, 256>&, const GridFormat&, const float*,
                            const float*);
template GridCodes fit_grid(const GridIndex<8, 512>&, const GridFormat&, const float*,
                            const float*);
template GridCodes fit_grid(const GridIndex<8, 1024>&, const GridFormat&, const float*,
                            const float*);
template GridCodes fit_grid(const GridIndex<4, 256>&, const GridFormat&, const float*,
                            const float*);
template GridCodes fit_grid(const GridIndex<4, 512>&, const GridFormat&, const float*,
                            const float*);

}  // namespace strata::quant
