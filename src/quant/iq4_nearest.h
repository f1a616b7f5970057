// The nearest of the 16 values of IQ4_NL and IQ4_XS.
#pragma once

#include <array>
#include <cstdint>

#include "quant/codebooks.h"
#include "quant/fit.h"

namespace strata::quant {

// Codes by the floor of twice the number: the middles between neighbours are whole or halves.
class Iq4Nearest {
  public:
    Iq4Nearest() {
        for (int i = 0; i < kCount; ++i) {
            for (int code = 0; code < 15; ++code) {
                if (i - kZero >= kIq4Values[code] + kIq4Values[code + 1]) ++codes_[i];
            }
        }
    }

    int code(float value) const {
        return codes_[nearest_in(2.0f * value - 0.5f, -kZero, kCount - 1 - kZero) + kZero];
    }

  private:
    static constexpr int kCount = 512;
    static constexpr int kZero = 256;

    std::array<std::uint8_t, kCount> codes_{};
};

inline const Iq4Nearest& iq4_nearest() {
    static const Iq4Nearest nearest;
    return nearest;
}

}  // namespace strata::quant
