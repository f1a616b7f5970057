// What both drivers of llama.cpp share.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace timer {

using Clock = std::chrono::steady_clock;

// More than any model has: all of it is on the GPU.
inline constexpr int kAllLayers = 1000;

[[noreturn]] inline void fail(const char* what) {
    std::fprintf(stderr, "llama: %s\n", what);
    std::exit(1);
}

inline double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Tokens as src/bench draws them.
inline std::vector<std::int32_t> draw(std::uint64_t seed, long count, int vocabulary) {
    std::vector<std::int32_t> tokens;
    for (long i = 0; i < count; ++i) {
        std::uint64_t z = seed + (static_cast<std::uint64_t>(i) + 1) * 0x9E3779B97F4A7C15;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
        z ^= z >> 31;
        tokens.push_back(static_cast<std::int32_t>(z % static_cast<std::uint64_t>(vocabulary)));
    }
    return tokens;
}

inline void print_list(const std::vector<double>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        std::printf("%s%.6f", i == 0 ? "[" : ",", values[i]);
    }
    std::printf("]");
}

}  // namespace timer
