// Matrices as prompts multiply with them: 32 columns of a row at a time, as floats.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/codebooks.cuh"
#include "backend/cuda/stored.cuh"
#include "backend/cuda/tensor_core.cuh"

namespace strata::cuda {

inline constexpr int kUnpackColumns = 32;

// Columns first .. first + 31 of a row of `cols`, `first` a multiple of 32, zeros where it has
// ended: load() brings their bytes, values() makes floats of them.
template <typename Stored>
struct PlainColumns {
    struct Raw {
        float v[kUnpackColumns];
    };
    __device__ static void load(const std::byte* row, std::int64_t cols, std::int64_t first,
                                Raw& raw) {
#pragma unroll
        for (int i = 0; i < kUnpackColumns; ++i) {
            raw.v[i] = first + i < cols ? Stored::at(row, first + i) : 0.0f;
        }
    }
    __device__ static void values(const Raw& raw, std::int64_t, float (&v)[kUnpackColumns]) {
#pragma unroll
        for (int i = 0; i < kUnpackColumns; ++i) v[i] = raw.v[i];
    }
};
// Of blocks in planes (blocks.h).
template <quant::Type kType>
struct BlockColumns {
    using Own = BlockUnits<kType>;

    struct Raw {
        typename Own::Raw unit;
        bool ended;
    };
    __device__ static void load(const std::byte* row, std::int64_t cols, std::int64_t first,
                                Raw& raw) {
        raw.ended = first >= cols;
        if (raw.ended) return;
        const auto blocks = static_cast<int>(cols / block_fields(kType).values);
        Own::load(Planes<kType>{row, blocks, align_of(row)}, static_cast<int>(first / kUnit),
                  raw.unit);
    }
    __device__ static void values(const Raw& raw, std::int64_t first, float (&v)[kUnpackColumns]) {
        Unit own{};
        if (!raw.ended) {
            Own::decode(raw.unit, static_cast<int>(first / kUnit), codebook_of(kType), own);
        }
#pragma unroll
        for (int i = 0; i < kUnpackColumns; ++i) {
            v[i] = raw.ended ? 0.0f : unit_value<Own>(own, i);
        }
    }
};

// use(the columns) for the type of a matrix.
template <typename Use>
void with_columns(quant::Type type, Use use) {
    switch (type) {
#define STRATA_CASE(name)   \
    case quant::Type::name: \
        return use(BlockColumns<quant::Type::name>());
        STRATA_BLOCK_TYPES(STRATA_CASE)
#undef STRATA_CASE
        case quant::Type::f32:
            return use(PlainColumns<StoredF32>());
        case quant::Type::f16:
            return use(PlainColumns<StoredF16>());
        case quant::Type::bf16:
            return use(PlainColumns<StoredBF16>());
        case quant::Type::i64:
            break;
    }
    STRATA_CHECK(!"a matrix of a format without fractions");
}

// Eight values as BF16.
__device__ inline uint4 bf16_eight(const float* v) {
    return make_uint4(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]), bf16_pair(v[4], v[5]),
                      bf16_pair(v[6], v[7]));
}
// What rounding took from each.
__device__ inline uint4 bf16_rests(const float* v) {
    float rest[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) rest[i] = v[i] - bfloat_to_float(bf16_of(v[i]));
    return bf16_eight(rest);
}

}  // namespace strata::cuda
