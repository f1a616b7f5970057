// Loops that do nothing but multiply and add in registers: the rate that no product can beat.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata::bench {

// Runs `rounds` rounds of `multiply_adds` each; the result keeps the compiler from leaving them
// out.
struct MultiplyLoop {
    std::int64_t (*run)(std::int64_t rounds);
    double multiply_adds;
};

// The fastest that this processor has.
MultiplyLoop f32_loop();
MultiplyLoop bf16_loop();
MultiplyLoop i8_loop();

// Reads `bytes`, a multiple of kReadStep, from `data`: from one end to the other, or in
// `kReadStreams` places in turn, which some memories like better.
inline constexpr std::int64_t kReadStep = 4096;
inline constexpr int kReadStreams = 4;
std::uint64_t read_all(const std::byte* data, std::int64_t bytes, int streams);

}  // namespace strata::bench
