// Single values of a stored row, with the bits that the formats' decode gives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/block_units.cuh"
#include "backend/cuda/codebooks.cuh"
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
template <quant::Type kType>
struct StoredBlocks {
    __device__ static float at(const std::byte* row, std::int64_t i) {
        using Own = BlockUnits<kType>;
        const int unit = static_cast<int>(i / kUnit);
        const int c = static_cast<int>(i % kUnit);
        typename Own::Raw raw;
        Own::load(AsStored<kType>{row}, unit, raw);
        Unit own;
        Own::decode(raw, unit, codebook_of(kType), own);
        return unit_value<Own>(own, c);
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
#define STRATA_CASE(name)   \
    case quant::Type::name: \
        return use(StoredBlocks<quant::Type::name>());
            STRATA_BLOCK_TYPES(STRATA_CASE)
#undef STRATA_CASE
        case quant::Type::i64:
            break;
    }
    STRATA_CHECK(!"a matrix of a format without fractions");
}

}  // namespace strata::cuda
