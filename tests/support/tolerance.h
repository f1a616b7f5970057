// How far a kernel may be from its float64 oracle. Frozen: a test that fails speaks of the kernel,
// never of the number, and no test holds a number of its own.
#pragma once

namespace strata::test {

// |got - want| <= relative * |want| + scaled * (root mean square of the row that want is in).
struct Tolerance {
    const char* name;
    double relative;
    double scaled;

    static constexpr Tolerance exact() { return {"exact", 0, 0}; }

    // One or two F32 operations, each half a unit in the last place (2^-24); a sum that cancels is
    // judged by its row.
    static constexpr Tolerance rounding() { return {"rounding", 0x1p-22, 0x1p-22}; }

    // An F32 sum of n products walks off by about sqrt(n) * 2^-24 of its own size: 6e-6 at the
    // widest rows (10240). Norms, gates and a second product after it multiply that by a few.
    static constexpr Tolerance projection() { return {"projection", 1e-5, 2e-5}; }

    // The delta rule carries the rounding of every earlier row, and the norm that follows divides
    // by the size of what may be a nearly cancelled read.
    static constexpr Tolerance recurrence() { return {"recurrence", 1e-4, 2e-4}; }

    // exp turns the absolute error of a score (1e-6 of scores around 10) into a relative one of the
    // weight; norms of queries and keys and two products around it multiply that by a few.
    static constexpr Tolerance attention() { return {"attention", 5e-5, 5e-5}; }

    // Inputs that are rounded to eight bits after F32 operations: one in a thousand or so lies at a
    // tie and moves by a 127th of its group's largest.
    static constexpr Tolerance rounded_inputs() { return {"rounded_inputs", 1e-2, 1e-2}; }

    // A value that was rounded to 11 bits on the other side of a tie: one unit in the last place.
    static constexpr Tolerance half() { return {"half", 0x1p-10, 1e-6}; }

    // A group of up to 32 values as multiples of a 127th of its largest, in F16: half a step, where
    // the largest is at most sqrt(32) times the root mean square.
    static constexpr Tolerance eight_bits() { return {"eight_bits", 0x1p-10, 0.0225}; }
};

// Two scores nearer to each other than this part of the larger may be ranked either way by F32
// sums; a row whose choice hangs on them says nothing about a kernel.
inline constexpr double kRankingMargin = 1e-4;

}  // namespace strata::test
