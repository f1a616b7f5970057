// Blocks as integers, 32 neighbouring columns (a unit) at a time:
//
//   value = scale * (code - kOffset) - minimum
//
// with a scale and a minimum for each half of the unit. A format is a specialization of BlockUnits:
// load() fetches the bytes of a unit, so that several units are on their way before decode() needs
// the first.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/blocks.h"
#include "backend/cuda/intrinsics.cuh"
#include "quant/codebooks/iq4.h"
#include "quant/e2m1.h"

namespace strata::cuda {

inline constexpr int kUnit = 32;

struct Unit {
    int codes[8];  // four columns each, the first lowest
    float scale[2];
    float minimum[2];
};

// The largest power of two up to 16 that divides an address and, where it is that of rows, their
// size.
__device__ inline int align_of(const std::byte* row, std::int64_t row_bytes = 0) {
    const auto bits = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(row)) |
                      static_cast<unsigned>(row_bytes) | 16u;
    return static_cast<int>(bits & (~bits + 1));
}

// Words at an address that is a multiple of `align`, a power of two up to 16.
template <int kWords>
__device__ inline void load_words(const std::byte* from, int align, unsigned* to) {
    if constexpr (kWords % 4 == 0) {
        if (align >= 16) {
            for (int i = 0; i < kWords; i += 4) {
                const uint4 four = __ldg(reinterpret_cast<const uint4*>(from + 4 * i));
                to[i] = four.x;
                to[i + 1] = four.y;
                to[i + 2] = four.z;
                to[i + 3] = four.w;
            }
            return;
        }
    }
    if constexpr (kWords % 2 == 0) {
        if (align >= 8) {
            for (int i = 0; i < kWords; i += 2) {
                const uint2 two = __ldg(reinterpret_cast<const uint2*>(from + 4 * i));
                to[i] = two.x;
                to[i + 1] = two.y;
            }
            return;
        }
    }
    if (align >= 4) {
        for (int i = 0; i < kWords; ++i) {
            to[i] = __ldg(reinterpret_cast<const unsigned*>(from + 4 * i));
        }
        return;
    }
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(from);
    for (int i = 0; i < kWords; ++i, bytes += 4) {
        to[i] = static_cast<unsigned>(bytes[0]) | static_cast<unsigned>(bytes[1]) << 8 |
                static_cast<unsigned>(bytes[2]) << 16 | static_cast<unsigned>(bytes[3]) << 24;
    }
}
__device__ inline unsigned load_byte(const std::byte* from) {
    return __ldg(reinterpret_cast<const std::uint8_t*>(from));
}
__device__ inline unsigned load_half(const std::byte* from, int align) {
    if (align >= 2) return __ldg(reinterpret_cast<const std::uint16_t*>(from));
    return load_byte(from) | load_byte(from + 1) << 8;
}
__device__ inline float float_of(unsigned half) {
    return half_to_float(static_cast<std::uint16_t>(half));
}
__device__ inline int byte_of(unsigned word, int index) {
    return static_cast<int>(word >> 8 * index & 255u);
}

// In place of an alignment: the address is one of shared memory, a multiple of `bytes`, which is at
// least 2.
struct SharedAlign {
    int bytes;
};
template <int kWords>
__device__ inline void load_words(const std::byte* from, SharedAlign align, unsigned* to) {
    if constexpr (kWords % 4 == 0) {
        if (align.bytes >= 16) {
#pragma unroll
            for (int i = 0; i < kWords; i += 4) {
                const uint4 four = *reinterpret_cast<const uint4*>(from + 4 * i);
                to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
            }
            return;
        }
    }
    if (align.bytes >= 4) {
#pragma unroll
        for (int i = 0; i < kWords; ++i) to[i] = *reinterpret_cast<const unsigned*>(from + 4 * i);
        return;
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
        const auto* halves = reinterpret_cast<const std::uint16_t*>(from + 4 * i);
        to[i] = halves[0] | static_cast<unsigned>(halves[1]) << 16;
    }
}
__device__ inline unsigned load_half(const std::byte* from, SharedAlign) {
    return *reinterpret_cast<const std::uint16_t*>(from);
}

// In place of an alignment: the address is one of memory that no kernel writes, a multiple of 16 at
// fields of as many bytes; the loads stay before a wait for earlier kernels that follows them.
struct EarlyAlign {};
template <int kWords>
__device__ inline void load_words(const std::byte* from, EarlyAlign, unsigned* to) {
    static_assert(kWords % 4 == 0);
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
        const uint4 four = load_early<uint4>(from + 4 * i);
        to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    }
}
__device__ inline unsigned load_half(const std::byte* from, EarlyAlign) {
    return load_early<std::uint16_t>(from);
}

// Where the fields of a row's blocks lie: in planes, or as files have them.
template <quant::Type kType>
struct Planes {
    const std::byte* row;
    int blocks;  // of the row
    int align;   // of the row, up to 16

    template <int kField>
    __device__ const std::byte* at(int block) const {
        constexpr BlockFields kFields = block_fields(kType);
        return row + kFields.before(kField) * blocks + kFields.field[kField].bytes * block;
    }
};
// Planes in shared memory, of formats whose rows are of even size.
template <quant::Type kType>
struct StagedPlanes {
    const std::byte* row;
    int blocks;
    SharedAlign align;

    template <int kField>
    __device__ const std::byte* at(int block) const {
        return Planes<kType>{row, blocks, 0}.template at<kField>(block);
    }
};
// Planes of rows that start at multiples of 16.
template <quant::Type kType>
struct EarlyPlanes {
    const std::byte* row;
    int blocks;
    static constexpr EarlyAlign align{};

    template <int kField>
    __device__ const std::byte* at(int block) const {
        return Planes<kType>{row, blocks, 0}.template at<kField>(block);
    }
};
template <quant::Type kType>
struct AsStored {
    const std::byte* row;
    static constexpr int align = 1;

    template <int kField>
    __device__ const std::byte* at(int block) const {
        constexpr BlockFields kFields = block_fields(kType);
        return row + std::int64_t{kFields.bytes} * block + kFields.field[kField].offset;
    }
};

// What most formats are; a specialization says where it differs.
struct CommonUnits {
    static constexpr int kOffset = 0;
    static constexpr bool kMinima = false;
    static constexpr bool kHalves = false;  // the scale of each half is its own
};

template <quant::Type kType>
struct BlockUnits;

// The low and the high halves of 16 bytes.
__device__ inline void split_nibbles(const unsigned* words, Unit& to) {
    for (int i = 0; i < 4; ++i) {
        to.codes[i] = static_cast<int>(words[i] & 0x0f0f0f0fu);
        to.codes[i + 4] = static_cast<int>(words[i] >> 4 & 0x0f0f0f0fu);
    }
}
// Bit i of `bits`, i < 4, at bit `at` of byte i.
__device__ inline int spread_bits(unsigned bits, int at) {
    return static_cast<int>(((bits & 15u) * 0x00204081u & 0x01010101u) << at);
}

struct NibbleTable {
    unsigned words[4];
};
template <typename Values>
constexpr NibbleTable nibble_table(const Values& values) {
    NibbleTable table{};
    for (int i = 0; i < 16; ++i) {
        table.words[i / 4] |= static_cast<unsigned>(static_cast<std::uint8_t>(values[i]))
                              << i % 4 * 8;
    }
    return table;
}
struct Iq4Table {
    static constexpr NibbleTable kValues = nibble_table(quant::kIq4Values);
};
struct E2m1Table {
    static constexpr NibbleTable kValues = nibble_table(quant::kE2m1Doubled);
};

// The values of the table for a word's low halves and its high halves. A selector of four bits
// picks among eight bytes; its fourth bit then tells which eight.
template <typename Table>
__device__ inline void look_up(unsigned word, int& low, int& high) {
    constexpr NibbleTable kValues = Table::kValues;
    const unsigned pick = word & 0x77777777u;
    const unsigned upper = (word & 0x88888888u) >> 1;
    unsigned part[2];
    for (int i = 0; i < 2; ++i) {
        const unsigned own = pick >> 16 * i;
        const unsigned first = __byte_perm(kValues.words[0], kValues.words[1], own);
        const unsigned second = __byte_perm(kValues.words[2], kValues.words[3], own);
        part[i] = __byte_perm(first, second, (upper >> 16 * i & 0xffffu) | 0x3210u);
    }
    low = static_cast<int>(__byte_perm(part[0], part[1], 0x6420));
    high = static_cast<int>(__byte_perm(part[0], part[1], 0x7531));
}

__device__ inline void set_scale(Unit& to, float scale) { to.scale[0] = to.scale[1] = scale; }

template <>
struct BlockUnits<quant::Type::q8_0> : CommonUnits {
    struct Raw {
        unsigned codes[8];
        unsigned scale;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        load_words<4>(in.template at<0>(unit), in.align, raw.codes);
        load_words<4>(in.template at<1>(unit), in.align, raw.codes + 4);
        raw.scale = load_half(in.template at<2>(unit), in.align);
    }
    __device__ static void decode(const Raw& raw, int, const unsigned*, Unit& to) {
        for (int i = 0; i < 8; ++i) to.codes[i] = static_cast<int>(raw.codes[i]);
        set_scale(to, float_of(raw.scale));
    }
};

template <>
struct BlockUnits<quant::Type::q4_0> : CommonUnits {
    static constexpr int kOffset = 8;
    struct Raw {
        unsigned codes[4];
        unsigned scale;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        load_words<4>(in.template at<0>(unit), in.align, raw.codes);
        raw.scale = load_half(in.template at<1>(unit), in.align);
    }
    __device__ static void decode(const Raw& raw, int, const unsigned*, Unit& to) {
        split_nibbles(raw.codes, to);
        set_scale(to, float_of(raw.scale));
    }
};

template <>
struct BlockUnits<quant::Type::iq4_nl> : CommonUnits {
    using Raw = BlockUnits<quant::Type::q4_0>::Raw;
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        BlockUnits<quant::Type::q4_0>::load(in, unit, raw);
    }
    __device__ static void decode(const Raw& raw, int, const unsigned*, Unit& to) {
        for (int i = 0; i < 4; ++i) look_up<Iq4Table>(raw.codes[i], to.codes[i], to.codes[i + 4]);
        set_scale(to, float_of(raw.scale));
    }
};

template <>
struct BlockUnits<quant::Type::q5_0> : CommonUnits {
    static constexpr int kOffset = 16;
    struct Raw {
        unsigned codes[4];
        unsigned high;
        unsigned scale;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        load_words<4>(in.template at<0>(unit), in.align, raw.codes);
        load_words<1>(in.template at<1>(unit), in.align, &raw.high);
        raw.scale = load_half(in.template at<2>(unit), in.align);
    }
    __device__ static void decode(const Raw& raw, int, const unsigned*, Unit& to) {
        split_nibbles(raw.codes, to);
        for (int i = 0; i < 8; ++i) to.codes[i] |= spread_bits(raw.high >> 4 * i, 4);
        set_scale(to, float_of(raw.scale));
    }
};

template <>
struct BlockUnits<quant::Type::q5_1> : CommonUnits {
    static constexpr bool kMinima = true;
    struct Raw {
        BlockUnits<quant::Type::q5_0>::Raw five;
        unsigned offset;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        BlockUnits<quant::Type::q5_0>::load(in, unit, raw.five);
        raw.offset = load_half(in.template at<3>(unit), in.align);
    }
    __device__ static void decode(const Raw& raw, int unit, const unsigned* book, Unit& to) {
        BlockUnits<quant::Type::q5_0>::decode(raw.five, unit, book, to);
        to.minimum[0] = to.minimum[1] = -float_of(raw.offset);
    }
};

template <>
struct BlockUnits<quant::Type::mxfp4> : CommonUnits {
    struct Raw {
        unsigned codes[4];
        unsigned exponent;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        load_words<4>(in.template at<0>(unit), in.align, raw.codes);
        raw.exponent = load_byte(in.template at<1>(unit));
    }
    // Half of 2^(exponent - 127), as the table is doubled: the two smallest are subnormal.
    __device__ static void decode(const Raw& raw, int, const unsigned*, Unit& to) {
        for (int i = 0; i < 4; ++i) look_up<E2m1Table>(raw.codes[i], to.codes[i], to.codes[i + 4]);
        set_scale(to, __uint_as_float(raw.exponent < 2 ? 0x00200000u << raw.exponent
                                                       : (raw.exponent - 1) << 23));
    }
};

template <>
struct BlockUnits<quant::Type::nvfp4> : CommonUnits {
    static constexpr bool kHalves = true;
    struct Raw {
        unsigned codes[4];
        unsigned scales;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        load_words<4>(in.template at<0>(unit / 2) + unit % 2 * 16, in.align, raw.codes);
        raw.scales = load_half(in.template at<1>(unit / 2) + unit % 2 * 2, in.align);
    }
    // Half of an unsigned E4M3, whose NaN reads as 0.
    __device__ static float half_scale(unsigned code) {
        if (code == 0x7f) return 0.0f;
        const unsigned exponent = code >> 3 & 15u;
        const auto fraction = static_cast<float>(code & 7u);
        if (exponent == 0) return fraction * 0x1p-10f;
        return (1.0f + fraction / 8.0f) * __uint_as_float((exponent + 127 - 8) << 23);
    }
    // Of each half, the low halves of eight bytes come first.
    __device__ static void decode(const Raw& raw, int, const unsigned*, Unit& to) {
        for (int half = 0; half < 2; ++half) {
            int* codes = to.codes + 4 * half;
            look_up<E2m1Table>(raw.codes[2 * half], codes[0], codes[2]);
            look_up<E2m1Table>(raw.codes[2 * half + 1], codes[1], codes[3]);
            to.scale[half] = half_scale(raw.scales >> 8 * half & 255u);
        }
    }
};

template <>
struct BlockUnits<quant::Type::q2_0> : CommonUnits {
    struct Raw {
        unsigned codes[2];
        unsigned scale;
    };
    template <typename Layout>
    __device__ static void load(const Layout& in, int unit, Raw& raw) {
        load_words<2>(in.template at<0>(unit / 2) + unit % 2 * 8, in.align, raw.codes);
        raw.scale = load_half(in.template at<1>(unit / 2), in.align);
    }
    // Eight fields of two bits become eight selectors of four, which pick code - 1.
    __device__ static void decode(const Raw& raw, int, const unsigned*, Unit& to) {
        constexpr unsigned kCodes = 0x020100ffu;
        for (int i = 0; i < 4; ++i) {
            unsigned picks = raw.codes[i / 2] >> i % 2 * 16 & 0xffffu;
            picks = (picks | picks << 8) & 0x00ff00ffu;
            picks = (picks | picks << 4) & 0x0f0f0f0fu;
            picks = (picks | picks << 2) & 0x33333333u;
            to.codes[2 * i] = static_cast<int>(__byte_perm(kCodes, 0, picks));
            to.codes[2 * i + 1] = static_cast<int>(__byte_perm(kCodes, 0, picks >> 16));
        }
        set_scale(to, float_of(raw.scale));
    }
};

}  // namespace strata::cuda
