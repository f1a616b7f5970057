// Units of IQ3_XXS from shared memory, in few instructions: what a lane looks up lies in banks that
// no other lane asks, and a sign picks a code of x or the negative one instead of changing a value.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/codebooks.cuh"
#include "backend/cuda/intrinsics.cuh"
#include "backend/cuda/operand.cuh"

namespace strata::cuda {

// Entry n: the four values of number n for each lane, then the picks of signs n for each lane. A
// byte of a word becomes an address of 256-byte entries by one permutation of bytes.
inline constexpr int kIq3EntryBytes = 256;
inline constexpr int kIq3PicksAt = kWarp * 4;
inline constexpr int kIq3Numbers = 256;
inline constexpr int kIq3Signs = 128;
inline constexpr int kIq3BookBytes = kIq3Numbers * kIq3EntryBytes;
static_assert(codebook_bytes(quant::Type::iq3_xxs) == kIq3Numbers * 4 &&
              kIq3EntryBytes == 2 * kIq3PicksAt);

// Which bytes of (codes, negative codes) eight values want, a nibble each, by their seven signs: an
// even number of the eight is negative.
__device__ inline unsigned iq3_picks(unsigned seven) {
    const unsigned signs = seven | (static_cast<unsigned>(__popc(seven)) & 1u) << 7;
    unsigned picks = 0x32103210u;
    for (unsigned i = 0; i < 8; ++i) picks |= (signs >> i & 1u) << (4 * i + 2);
    return picks;
}

// By all threads of a block; a barrier comes before they read.
__device__ inline void fill_iq3_book(std::byte* book) {
    constexpr int kCopies = kWarp / 4;  // of four words
    auto* to = reinterpret_cast<uint4*>(book);
    const auto thread = static_cast<int>(threadIdx.x);
    const auto threads = static_cast<int>(blockDim.x);
#pragma unroll 4
    for (int i = thread; i < kIq3Numbers * kCopies; i += threads) {
        const int n = i / kCopies;
        const unsigned values = reinterpret_cast<const unsigned*>(&kIq3XxsTable)[n];
        to[2 * kCopies * n + i % kCopies] = {values, values, values, values};
    }
#pragma unroll 1
    for (int n = thread / kCopies; n < kIq3Signs; n += threads / kCopies) {
        const unsigned picks = iq3_picks(static_cast<unsigned>(n));
        to[2 * kCopies * n + kCopies + thread % kCopies] = {picks, picks, picks, picks};
    }
}

// Shared memory by addresses that cost one addition.
#ifdef __CUDACC__
using SharedAt = unsigned;
__device__ __forceinline__ SharedAt shared_at(const std::byte* at) {
    return static_cast<unsigned>(__cvta_generic_to_shared(at));
}
__device__ __forceinline__ unsigned load_word(SharedAt at) {
    unsigned word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at));
    return word;
}
__device__ __forceinline__ std::uint16_t load_half(SharedAt at) {
    std::uint16_t half;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(at));
    return half;
}
#else
using SharedAt = const std::byte*;
inline SharedAt shared_at(const std::byte* at) { return at; }
inline unsigned load_word(SharedAt at) { return *reinterpret_cast<const unsigned*>(at); }
inline std::uint16_t load_half(SharedAt at) { return *reinterpret_cast<const std::uint16_t*>(at); }
#endif

// Codes of x of a unit, four a word, and the negative ones: no code is -128.
struct SignedUnit {
    unsigned codes[8];
    unsigned negative[8];
};

// Where the unit's parts of a row lie.
struct Iq3UnitAt {
    SharedAt numbers;
    SharedAt rest;
    SharedAt scale;
};

// sum + the part of one unit of a row with scale `a` of x.
__device__ __forceinline__ float add_iq3(SharedAt book, const Iq3UnitAt& at, const SignedUnit& x,
                                         float a, float sum) {
    const unsigned own = threadIdx.x % kWarp * 4;
    const unsigned numbers[2] = {load_word(at.numbers), load_word(at.numbers + 4)};
    const unsigned rest = load_word(at.rest);
    constexpr unsigned kEntries = (kIq3Signs - 1) * kIq3EntryBytes;
    const unsigned entries[4] = {rest << 8, rest << 1, rest >> 6, rest >> 13};
    int bits = kSumBits;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const unsigned picks = load_word(book + kIq3PicksAt + ((entries[i] & kEntries) | own));
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int four = 2 * i + j;
            // Bytes: the lane's own, the number, zeros.
            const unsigned entry =
                __byte_perm(numbers[four / 4], own, 0x5504u | static_cast<unsigned>(four % 4) << 4);
            const unsigned codes = pick_bytes(x.codes[four], x.negative[four], picks >> 16 * j);
            bits = __dp4a(static_cast<int>(load_word(book + entry)), static_cast<int>(codes), bits);
        }
    }
    // The four highest bits are s: (16 + s) / 2 - 7.75 = (s + 1/2) / 2, all of it exact.
    const float part =
        __fmaf_rn(__uint_as_float((rest >> 9 & 0x00780000u) | 0x41800000u), 0.5f, -7.75f);
    const float scale = half_to_float(load_half(at.scale)) * part;
    return __fmaf_rn(float_of_sum(bits), scale * a, sum);
}

}  // namespace strata::cuda
