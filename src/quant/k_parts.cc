#include "quant/k_parts.h"

#include <algorithm>
#include <limits>

namespace strata::quant {
namespace {

constexpr int kPartValues = kSuperBlock / kKParts;
constexpr int kPartMax = 63;

struct Part {
    std::span<const float> x;
    std::span<const float> w;
};

Part part_of(const Prepared<kSuperBlock>& values, int part) {
    const auto first = static_cast<std::size_t>(part * kPartValues);
    return {std::span(values.x).subspan(first, kPartValues),
            std::span(values.w).subspan(first, kPartValues)};
}

float error_of(const Part& part, int levels, float scale, float minimum) {
    const float inverse = inverse_of(scale);
    float error = 0.0f;
    for (std::size_t i = 0; i < part.x.size(); ++i) {
        const int code = nearest_in((part.x[i] + minimum) * inverse, 0, levels);
        const float off = scale * static_cast<float>(code) - minimum - part.x[i];
        error += part.w[i] * off * off;
    }
    return error;
}

// Six bits each for a part's scale and minimum: of the neighbours of what fits, those of the least
// error.
void choose(const Part& part, int levels, const Affine& fit, float scale, float minimum,
            std::uint8_t& scale_code, std::uint8_t& minimum_code) {
    const int near_scale = nearest_in(fit.scale * inverse_of(scale), 0, kPartMax);
    const int near_minimum = nearest_in(-fit.base * inverse_of(minimum), 0, kPartMax);
    float best = std::numeric_limits<float>::infinity();
    for (int s = std::max(near_scale - 1, 0); s <= std::min(near_scale + 1, kPartMax); ++s) {
        for (int m = std::max(near_minimum - 1, 0); m <= std::min(near_minimum + 1, kPartMax);
             ++m) {
            const float error = error_of(part, levels, scale * static_cast<float>(s),
                                         minimum * static_cast<float>(m));
            if (!(error < best)) continue;
            best = error;
            scale_code = static_cast<std::uint8_t>(s);
            minimum_code = static_cast<std::uint8_t>(m);
        }
    }
}

}  // namespace

KFit fit_parts(const Prepared<kSuperBlock>& values, int levels) {
    std::array<Affine, kKParts> fits;
    float largest_scale = 0.0f;
    float largest_minimum = 0.0f;
    for (int i = 0; i < kKParts; ++i) {
        const Part part = part_of(values, i);
        fits[i] = fit_affine(part.x, part.w, levels, true);
        largest_scale = std::max(largest_scale, fits[i].scale);
        largest_minimum = std::max(largest_minimum, -fits[i].base);
    }
    KFit fit{};
    fit.scale = values.stored(largest_scale / kPartMax);
    fit.minimum = values.stored(largest_minimum / kPartMax);
    const float scale = values.effective(fit.scale);
    const float minimum = values.effective(fit.minimum);
    for (int i = 0; i < kKParts; ++i) {
        const Part part = part_of(values, i);
        choose(part, levels, fits[i], scale, minimum, fit.parts.scales[i], fit.parts.minima[i]);
        const float inverse = inverse_of(scale * static_cast<float>(fit.parts.scales[i]));
        const float base = minimum * static_cast<float>(fit.parts.minima[i]);
        for (int j = 0; j < kPartValues; ++j) {
            const int code = nearest_in((part.x[j] + base) * inverse, 0, levels);
            fit.codes[i * kPartValues + j] = static_cast<std::uint8_t>(code);
        }
    }
    return fit;
}

}  // namespace strata::quant
