// Units of blocks as pairs of BF16, for tensor cores: four columns at a time, with as few
// instructions a weight as a format allows. The values are those of unit_value() (block_units.cuh),
// rounded.
#pragma once

#include "backend/cuda/block_units.cuh"
#include "backend/cuda/codebooks.cuh"
#include "backend/cuda/tensor_core.cuh"

namespace strata::cuda {

// A unit: set() takes what load() brought, four() gives columns 4 i .. 4 i + 3; one that is not set
// is zeros. Both get the table that fill() made in shared memory, kTableBytes long and aligned to
// 16; all threads of a block of kThreads call fill(), and a barrier comes after it.
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
    __device__ uint2 four(int i, const unsigned*) const {
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

// Up to eight values of BF16, apart in low and high bytes, as __byte_perm() picks them.
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
        const unsigned lows = __byte_perm(low[0], low[1], picks);
        const unsigned highs = __byte_perm(high[0], high[1], picks) ^ (signs & 0x80808080u);
        return make_uint2(__byte_perm(lows, highs, 0x5140), __byte_perm(lows, highs, 0x7362));
    }
};

// A unit has four values at most.
template <>
struct UnitPairs<quant::Type::q2_0> {
    using Own = BlockUnits<quant::Type::q2_0>;
    static constexpr int kTableBytes = 0;
    unsigned codes[2] = {};
    PairTable values;

    template <int kThreads>
    __device__ static void fill(unsigned*) {}
    __device__ void set(const Own::Raw& raw, int, const unsigned*) {
        codes[0] = raw.codes[0];
        codes[1] = raw.codes[1];
        const float scale = float_of(raw.scale);
        values.set(0, -scale, 0.0f * scale, scale, 2.0f * scale);
    }
    // Fields of two bits become nibbles.
    __device__ uint2 four(int i, const unsigned*) const {
        unsigned picks = codes[i / 4] >> i % 4 * 8 & 0xffu;
        picks = (picks | picks << 4) & 0x0f0fu;
        picks = (picks | picks << 2) & 0x3333u;
        return values.pick(picks, 0);
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
    __device__ uint2 four(int i, const unsigned* table) const {
        constexpr unsigned kStride = kCopies * 4;
        const unsigned word = numbers[i / 4];
        const unsigned at =
            (i % 4 == 0 ? word * kStride : word >> (i % 4 * 8 - 6)) & 255u * kStride;
        const unsigned copy = threadIdx.x % kCopies;
        const unsigned picks = table[at / 4 + copy];
        const unsigned own = (i % 2 == 0 ? signs : later) >> i / 2 * 7 & 127u;
        // Bit j to bit 8 j + 7: the products of seven bits do not meet.
        return values.pick(picks, own * 0x10204080u);
    }
};

}  // namespace strata::cuda
