// The encoder that IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S share. A block of 256 values has an f16, each
// part of it four bits that make the part's scale unit * f16 * (2 * bits + 1), and its values are
// vectors of a codebook with signs.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "quant/blocks.h"
#include "quant/codebooks.h"

namespace strata::quant {

inline constexpr int kGroup = 8;  // the values whose signs are stored together
inline constexpr int kGroups = kSuperBlock / kGroup;

struct GridCodes {
    std::uint16_t scale;                                 // f16
    std::array<std::uint8_t, kSuperBlock / 16> parts;    // as many as the format has
    std::array<std::uint16_t, kSuperBlock / 4> numbers;  // of vectors, likewise
    std::array<std::uint8_t, kSuperBlock / kGroup> signs;
};

struct GridFormat {
    int part_values;  // 16 or 32
    float unit;
    bool even;  // an even number of values of a group is negative
    // What the largest magnitude of a part is tried as, in units of its scale.
    float first;
    float last;
};

// A codebook, and for each rounded vector those of its vectors that lie near.
template <std::size_t kWidth, std::size_t kCount>
class GridIndex {
  public:
    explicit GridIndex(const Grid<kWidth, kCount>& grid);

    static constexpr std::size_t kNear = 16;

    float lowest() const { return levels_.front(); }
    const std::array<float, kWidth>& vector(int number) const { return vectors_[number]; }
    // Numbers of vectors near the magnitudes.
    const std::array<std::uint16_t, kNear>& near(const std::array<float, kWidth>& magnitudes) const;

  private:
    std::vector<float> levels_;
    std::vector<std::array<float, kWidth>> vectors_;
    std::vector<std::array<std::uint16_t, kNear>> near_;
};

// The codes that fit best, by weighted squares; importance may be null.
template <std::size_t kWidth, std::size_t kCount>
GridCodes fit_grid(const GridIndex<kWidth, kCount>& index, const GridFormat& format,
                   const float* in, const float* importance);

}  // namespace strata::quant
