// Single values of a stored row, with the bits that the formats' decode gives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "op/weight.h"
#include "quant/half.h"
#include "quant/type.h"

namespace strata::cuda {

// Rows need no alignment: bytes are read one by one and joined.
__device__ inline std::uint16_t load16(const std::byte* from) {
    return static_cast<std::uint16_t>(static_cast<unsigned>(from[0]) |
                                      static_cast<unsigned>(from[1]) << 8);
}

// Value `i` of a row, for each format.
struct StoredF32 {
    __device__ static float at(const std::byte* row, std::int64_t i) {
        const std::byte* value = row + 4 * i;
        return __uint_as_float(load16(value) | static_cast<unsigned>(load16(value + 2)) << 16);
    }
};
struct StoredF16 {
    __device__ static float at(const std::byte* row, std::int64_t i) {
        return quant::f16_to_f32(load16(row + 2 * i));
    }
};
struct StoredBF16 {
    __device__ static float at(const std::byte* row, std::int64_t i) {
        return quant::bf16_to_f32(load16(row + 2 * i));
    }
};
struct StoredQ8_0 {
    __device__ static float at(const std::byte* row, std::int64_t i) {
        const std::byte* block = row + i / 32 * 34;
        const auto code = static_cast<std::int8_t>(block[2 + i % 32]);
        return static_cast<float>(code) * quant::f16_to_f32(load16(block));
    }
};
struct StoredQ4_0 {
    __device__ static float at(const std::byte* row, std::int64_t i) {
        const std::byte* block = row + i / 32 * 18;
        const int pair = static_cast<int>(block[2 + i % 16]);
        const int code = i % 32 < 16 ? pair & 15 : pair >> 4;
        return static_cast<float>(code - 8) * quant::f16_to_f32(load16(block));
    }
};

// use(Stored()) for the format of a matrix.
template <typename Use>
void with_stored(quant::Type type, Use use) {
    switch (type) {
        case quant::Type::f32:
            return use(StoredF32());
        case quant::Type::f16:
            return use(StoredF16());
        case quant::Type::bf16:
            return use(StoredBF16());
        case quant::Type::q8_0:
            return use(StoredQ8_0());
        case quant::Type::q4_0:
            return use(StoredQ4_0());
        case quant::Type::i64:
            break;
    }
    STRATA_CHECK(!"a matrix of a format without fractions");
}

}  // namespace strata::cuda
