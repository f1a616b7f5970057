#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "op/cache_row.h"
#include "op/weight.h"

namespace strata::op {

// What one sequence keeps of one layer of a block draft: a ring. Position p belongs in slot
// p mod slots, and position[slot] says whose cell is there; -1: none.
struct DflashCells {
    void* keys = nullptr;    // [slots] rows of `type` (CacheRow), after norm and rotation
    void* values = nullptr;  // [slots] rows of `type`
    std::int32_t* position = nullptr;
    CacheType type = CacheType::f16;
    std::int64_t slots = 0;
};

struct DflashShape {
    int heads = 0;         // H, a multiple of G
    int kv_heads = 0;      // G
    int head_dim = 0;      // d
    int rotary_pairs = 0;  // P: dimensions i and i + P, i < P, turn together
};

struct DflashContextLayer {
    Weight key;
    Weight value;
    Gain key_norm = nullptr;
    DflashCells cells;
};

// Puts committed rows of the target into the cells of every layer of a block draft.
//
//   x' = x with 0 for every value that is not finite
//   c = rms_norm(fuse . x'; norm)
//   for each layer, at position p = first + t:
//     k_g = rope_p(rms_norm((key . c)_g; key_norm)), g < G;   v = value . c
//     slot p mod slots gets k and v, rounded to the cell type, and position p
//
// rms_norm and rope_p are those of sparse_attention.h.
//
// Source    The DFlash2 draft model; gains multiply as they are.
// Shapes    features [T, F]: x; fuse [D, F]; norm D; at least one layer; key, value [G*d, D];
//           key_norm d; inverse_frequency P; first + T at most 2^31; replaced [T], where given,
//           gets the count of values that became 0.
// Effects   Writes cells and positions of the last min(T, slots) rows of each layer, and replaced.
// Numerics  F32 sums; Tolerance::projection. Row t is bit-identical whatever T is.
struct DflashInject {
    MatrixView<const float> features;
    std::int64_t first = 0;
    const std::int64_t* first_at = nullptr;  // as SparseAttention's
    Weight fuse;
    Gain norm = nullptr;
    VectorView<const DflashContextLayer> layers;
    const double* inverse_frequency = nullptr;
    DflashShape shape;
    float epsilon = 0;
    VectorView<std::int32_t> replaced;
};

}  // namespace strata::op
