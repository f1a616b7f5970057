// BlockUnits for the K formats and IQ4_XS: blocks of 256 columns, eight units.
#pragma once

#include "backend/cuda/unpack.cuh"

namespace strata::cuda {

// `kBits` bits of each of 32 bytes, from `shift` on, shifted left by `to_bit`, into the codes.
template <int kBits>
__device__ inline void add_fields(const unsigned* words, int shift, int to_bit, Unit& to) {
    constexpr unsigned kMask = 0x01010101u * ((1u << kBits) - 1);
    for (int i = 0; i < 8; ++i) {
        to.codes[i] |= static_cast<int>((words[i] >> shift & kMask) << to_bit);
    }
}
__device__ inline void clear_codes(Unit& to) {
    for (int& four : to.codes) four = 0;
}

// Scale and minimum of a unit of six bits each, from 12 bytes: four scales, four minima, and the
// low halves of the next four of both, whose upper two bits lie above the six of the first.
__device__ inline void six_bit_part(const unsigned* words, int part, unsigned& scale,
                                    unsigned& minimum) {
    const int at = 8 * (part & 3);
    const unsigned own_scale = words[0] >> at;
    const unsigned own_minimum = words[1] >> at;
    const unsigned both = words[2] >> at;
    scale = part < 4 ? own_scale & 63u : (both & 15u) | (own_scale >> 2 & 48u);
    minimum = part < 4 ? own_minimum & 63u : (both >> 4 & 15u) | (own_minimum >> 2 & 48u);
}

struct KParts {
    unsigned words[3];
    unsigned scale;
    unsigned minimum;

    __device__ void set(int part, Unit& to) const {
        unsigned own_scale = 0;
        unsigned own_minimum = 0;
        six_bit_part(words, part, own_scale, own_minimum);
        set_scale(to, float_of(scale) * static_cast<float>(own_scale));
        to.minimum[0] = to.minimum[1] = float_of(minimum) * static_cast<float>(own_minimum);
    }
};

template <>
struct BlockUnits<quant::Type::q2_k> : CommonUnits {
    static constexpr bool kMinima = true;
    static constexpr bool kHalves = true;
    struct Raw {
        unsigned codes[8];
        unsigned parts;
        unsigned scale;
        unsigned minimum;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        const int block = unit / 8;
        load_words<8>(in.template at<0>(block) + unit % 8 / 4 * 32, in.align, raw.codes);
        raw.parts = load_half(in.template at<1>(block) + unit % 8 * 2, in.align);
        raw.scale = load_half(in.template at<2>(block), in.align);
        raw.minimum = load_half(in.template at<3>(block), in.align);
    }
    __device__ static void decode(const Raw& raw, int unit, const unsigned*, Unit& to) {
        clear_codes(to);
        add_fields<2>(raw.codes, unit % 4 * 2, 0, to);
        for (int half = 0; half < 2; ++half) {
            const unsigned part = raw.parts >> 8 * half;
            to.scale[half] = float_of(raw.scale) * static_cast<float>(part & 15u);
            to.minimum[half] = float_of(raw.minimum) * static_cast<float>(part >> 4 & 15u);
        }
    }
};

template <>
struct BlockUnits<quant::Type::q3_k> : CommonUnits {
    static constexpr int kOffset = 4;
    static constexpr bool kHalves = true;
    struct Raw {
        unsigned low[8];
        unsigned high[8];
        unsigned parts[3];
        unsigned scale;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        const int block = unit / 8;
        load_words<8>(in.template at<0>(block) + unit % 8 / 4 * 32, in.align, raw.low);
        load_words<8>(in.template at<1>(block), in.align, raw.high);
        load_words<3>(in.template at<2>(block), in.align, raw.parts);
        raw.scale = load_half(in.template at<3>(block), in.align);
    }
    // Low halves of eight bytes, then high halves; the upper two bits in four more bytes.
    __device__ static float part_scale(const Raw& raw, int part) {
        const unsigned low = raw.parts[part % 8 / 4] >> part % 4 * 8 >> part / 8 * 4 & 15u;
        const unsigned high = raw.parts[2] >> part % 4 * 8 >> part / 4 * 2 & 3u;
        return static_cast<float>(static_cast<int>(low | high << 4) - 32);
    }
    __device__ static void decode(const Raw& raw, int unit, const unsigned*, Unit& to) {
        clear_codes(to);
        add_fields<2>(raw.low, unit % 4 * 2, 0, to);
        add_fields<1>(raw.high, unit % 8, 2, to);
        for (int half = 0; half < 2; ++half) {
            to.scale[half] = float_of(raw.scale) * part_scale(raw, unit % 8 * 2 + half);
        }
    }
};

template <>
struct BlockUnits<quant::Type::q4_k> : CommonUnits {
    static constexpr bool kMinima = true;
    struct Raw {
        unsigned codes[8];
        KParts parts;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        const int block = unit / 8;
        load_words<8>(in.template at<0>(block) + unit % 8 / 2 * 32, in.align, raw.codes);
        load_words<3>(in.template at<1>(block), in.align, raw.parts.words);
        raw.parts.scale = load_half(in.template at<2>(block), in.align);
        raw.parts.minimum = load_half(in.template at<3>(block), in.align);
    }
    __device__ static void decode(const Raw& raw, int unit, const unsigned*, Unit& to) {
        clear_codes(to);
        add_fields<4>(raw.codes, unit % 2 * 4, 0, to);
        raw.parts.set(unit % 8, to);
    }
};

template <>
struct BlockUnits<quant::Type::q5_k> : CommonUnits {
    static constexpr bool kMinima = true;
    struct Raw {
        unsigned low[8];
        unsigned high[8];
        KParts parts;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        const int block = unit / 8;
        load_words<8>(in.template at<0>(block) + unit % 8 / 2 * 32, in.align, raw.low);
        load_words<8>(in.template at<1>(block), in.align, raw.high);
        load_words<3>(in.template at<2>(block), in.align, raw.parts.words);
        raw.parts.scale = load_half(in.template at<3>(block), in.align);
        raw.parts.minimum = load_half(in.template at<4>(block), in.align);
    }
    __device__ static void decode(const Raw& raw, int unit, const unsigned*, Unit& to) {
        clear_codes(to);
        add_fields<4>(raw.low, unit % 2 * 4, 0, to);
        add_fields<1>(raw.high, unit % 8, 4, to);
        raw.parts.set(unit % 8, to);
    }
};

template <>
struct BlockUnits<quant::Type::q6_k> : CommonUnits {
    static constexpr int kOffset = 32;
    static constexpr bool kHalves = true;
    struct Raw {
        unsigned low[8];
        unsigned high[8];
        unsigned parts;
        unsigned scale;
    };
    // 128 columns take 64 bytes of low halves, then high ones, and 32 bytes of two bits each.
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        const int block = unit / 8;
        const int half = unit % 8 / 4;
        load_words<8>(in.template at<0>(block) + half * 64 + unit % 2 * 32, in.align, raw.low);
        load_words<8>(in.template at<1>(block) + half * 32, in.align, raw.high);
        raw.parts = load_half(in.template at<2>(block) + unit % 8 * 2, in.align);
        raw.scale = load_half(in.template at<3>(block), in.align);
    }
    __device__ static void decode(const Raw& raw, int unit, const unsigned*, Unit& to) {
        clear_codes(to);
        add_fields<4>(raw.low, unit % 4 / 2 * 4, 0, to);
        add_fields<2>(raw.high, unit % 4 * 2, 4, to);
        for (int half = 0; half < 2; ++half) {
            const auto part = static_cast<std::int8_t>(byte_of(raw.parts, half));
            to.scale[half] = float_of(raw.scale) * static_cast<float>(part);
        }
    }
};

template <>
struct BlockUnits<quant::Type::iq4_xs> : CommonUnits {
    struct Raw {
        unsigned codes[4];
        unsigned low;
        unsigned high;
        unsigned scale;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        const int block = unit / 8;
        load_words<4>(in.template at<0>(block) + unit % 8 * 16, in.align, raw.codes);
        raw.low = load_byte(in.template at<1>(block) + unit % 8 / 2);
        raw.high = load_half(in.template at<2>(block), in.align);
        raw.scale = load_half(in.template at<3>(block), in.align);
    }
    __device__ static void decode(const Raw& raw, int unit, const unsigned*, Unit& to) {
        for (int i = 0; i < 4; ++i) look_up<Iq4Table>(raw.codes[i], to.codes[i], to.codes[i + 4]);
        const unsigned part = (raw.low >> unit % 2 * 4 & 15u) | (raw.high >> unit % 8 * 2 & 3u)
                                                                    << 4;
        set_scale(to, float_of(raw.scale) * static_cast<float>(static_cast<int>(part) - 32));
    }
};

}  // namespace strata::cuda
