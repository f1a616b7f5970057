// Units of blocks as pairs of BF16, for tensor cores: four columns at a time, with as few
// instructions a weight as a format allows. The values are those of unit_value() (block_units.cuh),
// rounded.
#pragma once

#include "backend/cuda/block_units.cuh"
#include "backend/cuda/codebooks.cuh"
#include "backend/cuda/tensor_core.cuh"

namespace strata::cuda {

// A unit: set() takes what load() brought; four() gives columns 4 i .. 4 i + 3 from what look() of
// the same i found, which can be asked for early. One that is not set is zeros. set() and look()
// get the table that fill() made in shared memory, kTableBytes long and aligned to 16; all threads
// of a block of kThreads call fill(), and a barrier comes after it.
template <quant::Type kType>
struct UnitPairs {
    using Own = BlockUnits<kType>;
    static constexpr int kTableBytes = codebook_bytes(kType);
    Unit unit{};

    template <int kThreads>
    __device__ static void fill(unsigned* table) {
        for (int i = static_cast<int>(threadIdx.x); i < kTableBytes / 4; i += kThreads) {
            table[i] = codebook_of(kType)[i];
        }
    }
    __device__ void set(const typename Own::Raw& raw, int number, const unsigned* table) {
        Own::decode(raw, number, table, unit);
    }
    // 2^23 + c is exact for a byte c, and so is its difference from 2^23: conversions proper take
    // eight times as long.
    __device__ unsigned look(int, const unsigned*) const { return 0; }
    __device__ uint2 four(int i, unsigned) const {
        constexpr unsigned kLarge = 0x4b000000u;  // 2^23
        constexpr float kZero = 8388608.0f + 128.0f + static_cast<float>(Own::kOffset);
        const unsigned codes = static_cast<unsigned>(unit.codes[i]) ^ 0x80808080u;
        float v[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float large =
                __uint_as_float(__byte_perm(codes, kLarge, 0x7440u | static_cast<unsigned>(j)));
            v[j] = unit.scale[i / 4] * (large - kZero);
            if constexpr (Own::kMinima) v[j] -= unit.minimum[i / 4];
        }
        return make_uint2(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]));
    }
};

// A unit has four values, all in two words: a field of two bits names two bytes of them.
template <>
struct UnitPairs<quant::Type::q2_0> {
    using Own = BlockUnits<quant::Type::q2_0>;
    static constexpr int kTableBytes = 0;
    unsigned codes[2] = {};
    unsigned low = 0;   // of codes 0 and 1
    unsigned high = 0;  // of codes 2 and 3

    template <int kThreads>
    __device__ static void fill(unsigned*) {}
    __device__ void set(const Own::Raw& raw, int, const unsigned*) {
        codes[0] = raw.codes[0];
        codes[1] = raw.codes[1];
        const float scale = float_of(raw.scale);
        low = bf16_pair(-scale, 0.0f * scale);
        high = bf16_pair(scale, 2.0f * scale);
    }
    __device__ unsigned look(int, const unsigned*) const { return 0; }
    // Fields become bytes, and those the pairs of nibbles 2 c and 2 c + 1. Products, in which no
    // bits meet, take the place of shifts, beside which they can run.
    __device__ uint2 four(int i, unsigned) const {
        const unsigned fields =
            __byte_perm(codes[i / 4], 0, 0x4440u | static_cast<unsigned>(i % 4));
        const unsigned twos = fields * 0x1001u & 0x000f000fu;
        const unsigned ones = twos * 0x41u & 0x03030303u;
        const unsigned picks = ones * 0x22u + 0x10101010u;
        return make_uint2(pick_bytes(low, high, picks), pick_bytes(low, high, picks >> 16));
    }
};

// Eight values of BF16, apart in low and high bytes, as pick_bytes() picks them.
struct PairTable {
    unsigned low[2] = {};
    unsigned high[2] = {};

    __device__ void set(int half, float a, float b, float c, float d) {
        const unsigned first = bf16_pair(a, b);
        const unsigned second = bf16_pair(c, d);
        low[half] = __byte_perm(first, second, 0x6420);
        high[half] = __byte_perm(first, second, 0x7531);
    }
    // The values that the low four nibbles of `picks` name, each below 8, the signs changed where
    // `signs` has the highest bit of a byte set.
    __device__ uint2 pick(unsigned picks, unsigned signs) const {
        const unsigned lows = pick_bytes(low[0], low[1], picks);
        const unsigned highs = pick_bytes(high[0], high[1], picks) ^ (signs & 0x80808080u);
        return make_uint2(__byte_perm(lows, highs, 0x5140), __byte_perm(lows, highs, 0x7362));
    }
};

// A magnitude is one of eight. The table has the numbers of a vector's four as nibbles, a copy for
// each two lanes: lookups of a warp diverge.
template <>
struct UnitPairs<quant::Type::iq3_xxs> {
    using Own = BlockUnits<quant::Type::iq3_xxs>;
    static constexpr int kVectors = 256;
    static constexpr int kCopies = 16;
    static constexpr int kTableBytes = kVectors * kCopies * 4;
    unsigned numbers[2] = {};
    unsigned signs = 0;  // the stored seven of each eight
    unsigned later = 0;  // the last four of each eight, seven bits apart
    PairTable values;

    template <int kThreads>
    __device__ static void fill(unsigned* table) {
        for (int i = static_cast<int>(threadIdx.x); i < kVectors * kCopies; i += kThreads) {
            const unsigned vector = codebook_of(quant::Type::iq3_xxs)[i / kCopies];
            unsigned picks = 0;
            for (int j = 0; j < 4; ++j) {
                picks |= static_cast<unsigned>(byte_of(vector, j)) / 8 << 4 * j;
            }
            table[i] = picks;
        }
    }
    __device__ void set(const Own::Raw& raw, int, const unsigned*) {
        numbers[0] = raw.numbers[0];
        numbers[1] = raw.numbers[1];
        signs = raw.rest;
        // Whether the number of signs of each seven is odd, at its lowest bit: what the eighth is.
        constexpr unsigned kLowest = 1u | 1u << 7 | 1u << 14 | 1u << 21;
        const unsigned threes = signs ^ signs >> 1 ^ signs >> 2;
        const unsigned odd = (threes ^ threes >> 3 ^ signs >> 6) & kLowest;
        later = (signs >> 4 & kLowest * 7) | odd << 3;
        const float scale = float_of(raw.scale) * 0.25f * odd_part(signs >> 28);
        values.set(0, 4.0f * scale, 12.0f * scale, 20.0f * scale, 28.0f * scale);
        values.set(1, 36.0f * scale, 44.0f * scale, 52.0f * scale, 62.0f * scale);
    }
    // The numbers of the magnitudes.
    __device__ unsigned look(int i, const unsigned* table) const {
        constexpr unsigned kStride = kCopies * 4;
        const unsigned word = numbers[i / 4];
        const unsigned at =
            (i % 4 == 0 ? word * kStride : word >> (i % 4 * 8 - 6)) & 255u * kStride;
        const unsigned copy = threadIdx.x % kCopies * 4;
        return *reinterpret_cast<const unsigned*>(reinterpret_cast<const std::byte*>(table) +
                                                  (at | copy));
    }
    __device__ uint2 four(int i, unsigned picks) const {
        // Bit j of seven goes to bit 8 j + 7: products of seven bits do not meet, wherever the
        // seven begin.
        constexpr unsigned kSpread = 0x10204080u;
        const unsigned word = (i % 2 == 0 ? signs : later) >> i / 4 * 14;
        const unsigned own =
            i / 2 % 2 == 0 ? (word & 127u) * kSpread : (word & 127u << 7) * (kSpread >> 7);
        return values.pick(picks, own);
    }
};

}  // namespace strata::cuda
