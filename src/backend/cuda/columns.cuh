// Matrices as prompts multiply with them: 32 columns of a row at a time, as floats.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/stored.cuh"
#include "backend/cuda/tensor_core.cuh"

namespace strata::cuda {

inline constexpr int kUnpackColumns = 32;

// Columns first .. first + 31 of a row of `cols`, zeros where it has ended: load() brings their
// bytes, values() makes floats of them.
template <typename Stored>
struct StoredColumns {
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

// use(the columns) for the type of a matrix.
template <typename Use>
void with_columns(quant::Type type, Use use) {
    with_stored(type, [&](auto stored) { use(StoredColumns<decltype(stored)>()); });
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
