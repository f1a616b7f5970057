// The instruction sets that kernels are written for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata::cpu {

// Each holds the ones before it. Results do not depend on the set.
enum class Instructions : std::uint8_t {
    scalar,  // what every machine of the build has
    avx2,    // AVX2 with FMA and F16C
    avx512,  // AVX-512 F, BW, DQ, VL, VNNI and VBMI
};

inline constexpr std::size_t kInstructionsCount = 3;

// The last of the above that this machine has.
Instructions fastest_instructions();

}  // namespace strata::cpu
