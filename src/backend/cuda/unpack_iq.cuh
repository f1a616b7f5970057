// BlockUnits for the formats with codebooks: blocks of 256 columns, eight units. decode() takes the
// codebook as codebooks.cuh has it.
#pragma once

#include "backend/cuda/unpack.cuh"

namespace strata::cuda {

// Four values, none of them 0, negated where the low bits of `signs` are set.
__device__ inline int with_signs(unsigned values, unsigned signs) {
    const auto ones = static_cast<unsigned>(spread_bits(signs, 0));
    return static_cast<int>((values ^ ones * 255u) + ones);
}
__device__ inline void set_eight(const unsigned* book, unsigned number, unsigned signs,
                                 int* codes) {
    const uint2 vector = reinterpret_cast<const uint2*>(book)[number];
    codes[0] = with_signs(vector.x, signs);
    codes[1] = with_signs(vector.y, signs >> 4);
}
// Eight signs from the seven that are stored: the number of negative values is even.
__device__ inline unsigned eight_signs(unsigned seven) {
    return seven | (static_cast<unsigned>(__popc(seven)) & 1u) << 7;
}
// Of a scale of four bits, (part + 1/2) times two.
__device__ inline float odd_part(unsigned part) { return static_cast<float>(2 * (part & 15u) + 1); }

template <>
struct BlockUnits<quant::Type::iq2_xxs> : CommonUnits {
    struct Raw {
        unsigned numbers;
        unsigned rest;
        unsigned scale;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        unsigned words[2];
        load_words<2>(in.template at<0>(unit / 8) + unit % 8 * 8, in.align, words);
        raw.numbers = words[0];
        raw.rest = words[1];
        raw.scale = load_half(in.template at<1>(unit / 8), in.align);
    }
    __device__ static void decode(const Raw& raw, int, const unsigned* book, Unit& to) {
        for (int i = 0; i < 4; ++i) {
            set_eight(book, static_cast<unsigned>(byte_of(raw.numbers, i)),
                      eight_signs(raw.rest >> 7 * i & 127u), to.codes + 2 * i);
        }
        set_scale(to, float_of(raw.scale) * 0.125f * odd_part(raw.rest >> 28));
    }
};

template <>
struct BlockUnits<quant::Type::iq2_xs> : CommonUnits {
    static constexpr bool kHalves = true;
    struct Raw {
        unsigned vectors[2];
        unsigned parts;
        unsigned scale;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        load_words<2>(in.template at<0>(unit / 8) + unit % 8 * 8, in.align, raw.vectors);
        raw.parts = load_byte(in.template at<1>(unit / 8) + unit % 8);
        raw.scale = load_half(in.template at<2>(unit / 8), in.align);
    }
    __device__ static void decode(const Raw& raw, int, const unsigned* book, Unit& to) {
        for (int i = 0; i < 4; ++i) {
            const unsigned vector = raw.vectors[i / 2] >> i % 2 * 16 & 0xffffu;
            set_eight(book, vector & 511u, eight_signs(vector >> 9), to.codes + 2 * i);
        }
        const float scale = float_of(raw.scale) * 0.125f;
        to.scale[0] = scale * odd_part(raw.parts);
        to.scale[1] = scale * odd_part(raw.parts >> 4);
    }
};

template <>
struct BlockUnits<quant::Type::iq2_s> : CommonUnits {
    static constexpr bool kHalves = true;
    struct Raw {
        unsigned low;
        unsigned signs;
        unsigned high;
        unsigned parts;
        unsigned scale;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        const int part = unit % 8;
        load_words<1>(in.template at<0>(unit / 8) + 4 * part, in.align, &raw.low);
        load_words<1>(in.template at<1>(unit / 8) + 4 * part, in.align, &raw.signs);
        raw.high = load_byte(in.template at<2>(unit / 8) + part);
        raw.parts = load_byte(in.template at<3>(unit / 8) + part);
        raw.scale = load_half(in.template at<4>(unit / 8), in.align);
    }
    __device__ static void decode(const Raw& raw, int, const unsigned* book, Unit& to) {
        for (int i = 0; i < 4; ++i) {
            const unsigned number =
                static_cast<unsigned>(byte_of(raw.low, i)) | (raw.high >> 2 * i & 3u) << 8;
            set_eight(book, number, raw.signs >> 8 * i, to.codes + 2 * i);
        }
        const float scale = float_of(raw.scale) * 0.125f;
        to.scale[0] = scale * odd_part(raw.parts);
        to.scale[1] = scale * odd_part(raw.parts >> 4);
    }
};

template <>
struct BlockUnits<quant::Type::iq3_xxs> : CommonUnits {
    struct Raw {
        unsigned numbers[2];
        unsigned rest;
        unsigned scale;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        load_words<2>(in.template at<0>(unit / 8) + unit % 8 * 8, in.align, raw.numbers);
        load_words<1>(in.template at<1>(unit / 8) + unit % 8 * 4, in.align, &raw.rest);
        raw.scale = load_half(in.template at<2>(unit / 8), in.align);
    }
    __device__ static void decode(const Raw& raw, int, const unsigned* book, Unit& to) {
        for (int i = 0; i < 4; ++i) {
            const unsigned signs = eight_signs(raw.rest >> 7 * i & 127u);
            for (int half = 0; half < 2; ++half) {
                const int at = 2 * i + half;
                to.codes[at] =
                    with_signs(book[byte_of(raw.numbers[at / 4], at % 4)], signs >> 4 * half);
            }
        }
        set_scale(to, float_of(raw.scale) * 0.25f * odd_part(raw.rest >> 28));
    }
};

template <>
struct BlockUnits<quant::Type::iq3_s> : CommonUnits {
    struct Raw {
        unsigned low[2];
        unsigned signs;
        unsigned high;
        unsigned parts;
        unsigned scale;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        const int part = unit % 8;
        load_words<2>(in.template at<0>(unit / 8) + 8 * part, in.align, raw.low);
        load_words<1>(in.template at<1>(unit / 8) + 4 * part, in.align, &raw.signs);
        raw.high = load_byte(in.template at<2>(unit / 8) + part);
        raw.parts = load_byte(in.template at<3>(unit / 8) + part / 2);
        raw.scale = load_half(in.template at<4>(unit / 8), in.align);
    }
    __device__ static void decode(const Raw& raw, int unit, const unsigned* book, Unit& to) {
        for (int i = 0; i < 8; ++i) {
            const unsigned number =
                static_cast<unsigned>(byte_of(raw.low[i / 4], i % 4)) | (raw.high >> i & 1u) << 8;
            to.codes[i] = with_signs(book[number], raw.signs >> 4 * i);
        }
        set_scale(to, float_of(raw.scale) * odd_part(raw.parts >> unit % 2 * 4));
    }
};

template <>
struct BlockUnits<quant::Type::iq1_m> : CommonUnits {
    static constexpr bool kHalves = true;
    struct Raw {
        unsigned low;
        unsigned high;
        unsigned parts[2];
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        load_words<1>(in.template at<0>(unit / 8) + unit % 8 * 4, in.align, &raw.low);
        raw.high = load_half(in.template at<1>(unit / 8) + unit % 8 * 2, in.align);
        load_words<2>(in.template at<2>(unit / 8), in.align, raw.parts);
    }
    // Four words: a quarter of the block's f16 above four scales of three bits each.
    __device__ static float block_scale(const unsigned* parts) {
        return float_of((parts[0] >> 12 & 0xfu) | (parts[0] >> 24 & 0xf0u) |
                        (parts[1] >> 4 & 0xf00u) | (parts[1] >> 16 & 0xf000u));
    }
    // Eight times a value of -1, 0 or 1, plus or minus 1.
    __device__ static int shifted(unsigned values, bool down) {
        const unsigned eight_fold = values << 3 & 0xf8f8f8f8u;
        return static_cast<int>(down ? __vsub4(eight_fold, 0x01010101u) : eight_fold | 0x01010101u);
    }
    __device__ static void decode(const Raw& raw, int unit, const unsigned* book, Unit& to) {
        for (int i = 0; i < 4; ++i) {
            const unsigned high = raw.high >> 4 * i & 15u;
            const unsigned number = static_cast<unsigned>(byte_of(raw.low, i)) | (high & 7u) << 8;
            const uint2 vector = reinterpret_cast<const uint2*>(book)[number];
            to.codes[2 * i] = shifted(vector.x, (high & 8u) != 0);
            to.codes[2 * i + 1] = shifted(vector.y, (high & 8u) != 0);
        }
        const float scale = block_scale(raw.parts) * 0.125f;
        const unsigned word = raw.parts[unit % 8 / 4] >> unit % 4 / 2 * 16;
        for (int half = 0; half < 2; ++half) {
            const unsigned part = word >> (unit % 2 * 2 + half) * 3 & 7u;
            to.scale[half] = scale * static_cast<float>(2 * part + 1);
        }
    }
};

}  // namespace strata::cuda
