// The codebooks of the IQ formats where kernels read them. Lookups of the lanes of a warp diverge:
// kernels that make many copy a table into shared memory first.
#pragma once

#include <cuda_runtime.h>

#include "quant/codebooks/expand.h"
#include "quant/codebooks/iq1.h"
#include "quant/codebooks/iq2.h"
#include "quant/codebooks/iq3.h"
#include "quant/type.h"

namespace strata::cuda {

static __device__ const quant::Grid<8, 2048> kIq1Table =
    quant::expand_grid<8, 2>(quant::kIq1GridPacked, quant::kIq1GridLevels);
static __device__ const quant::Grid<8, 256> kIq2XxsTable =
    quant::expand_grid<8, 2>(quant::kIq2XxsGridPacked, quant::kIq2XxsGridLevels);
static __device__ const quant::Grid<8, 512> kIq2XsTable =
    quant::expand_grid<8, 2>(quant::kIq2XsGridPacked, quant::kIq2XsGridLevels);
static __device__ const quant::Grid<8, 1024> kIq2STable =
    quant::expand_grid<8, 2>(quant::kIq2SGridPacked, quant::kIq2SGridLevels);
static __device__ const quant::Grid<4, 256> kIq3XxsTable =
    quant::expand_grid<4, 3>(quant::kIq3XxsGridPacked, quant::kIq3XxsGridLevels);
static __device__ const quant::Grid<4, 512> kIq3STable =
    quant::expand_grid<4, 3>(quant::kIq3SGridPacked, quant::kIq3SGridLevels);

// Bytes of a format's codebook; 0: it has none.
constexpr int codebook_bytes(quant::Type type) {
    switch (type) {
        case quant::Type::iq1_m:
            return sizeof(kIq1Table);
        case quant::Type::iq2_xxs:
            return sizeof(kIq2XxsTable);
        case quant::Type::iq2_xs:
            return sizeof(kIq2XsTable);
        case quant::Type::iq2_s:
            return sizeof(kIq2STable);
        case quant::Type::iq3_xxs:
            return sizeof(kIq3XxsTable);
        case quant::Type::iq3_s:
            return sizeof(kIq3STable);
        default:
            return 0;
    }
}

// Vectors as words, a vector of eight in two. Null: the format has no codebook.
__device__ inline const unsigned* codebook_of(quant::Type type) {
    const void* table = nullptr;
    switch (type) {
        case quant::Type::iq1_m:
            table = &kIq1Table;
            break;
        case quant::Type::iq2_xxs:
            table = &kIq2XxsTable;
            break;
        case quant::Type::iq2_xs:
            table = &kIq2XsTable;
            break;
        case quant::Type::iq2_s:
            table = &kIq2STable;
            break;
        case quant::Type::iq3_xxs:
            table = &kIq3XxsTable;
            break;
        case quant::Type::iq3_s:
            table = &kIq3STable;
            break;
        default:
            break;
    }
    return static_cast<const unsigned*>(table);
}

}  // namespace strata::cuda
