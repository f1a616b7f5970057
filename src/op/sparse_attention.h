#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "op/cache_row.h"
#include "op/weight.h"

namespace strata::op {

// Rows of a sequence: kernels keep positions in 32 bits.
inline constexpr std::int64_t kContextMax = INT32_MAX;

// What one sequence keeps of one attention layer. Entries at and past the first row of a call are
// scratch: dropping rows needs no work here.
struct AttentionCache {
    void* keys = nullptr;    // [context] rows of `type` (CacheRow), after norm and rotation
    void* values = nullptr;  // [context] rows of `type`
    CacheType type = CacheType::f16;
    float* block_keys = nullptr;  // [context / ratio, di], after norm and rotation
    std::int64_t context = 0;     // rows that fit
};

struct AttentionShape {
    int heads = 0;         // H, a multiple of G
    int kv_heads = 0;      // G
    int head_dim = 0;      // d
    int index_heads = 0;   // HI
    int index_dim = 0;     // di
    int ratio = 0;         // rows a block
    int blocks_kept = 0;   // B
    int rotary_pairs = 0;  // P: dimensions i and i + P, i < P, turn together
};

// Causal attention of each row over the rows that an index selects, gated per head.
//
//   for h < H: [q_h | gate_h] = rows h*2d.. of query . x;   k = key . x;   v = value . x
//   q_h, k_g <- rope_p(rms_norm(.; query_norm / key_norm))
//   k and v are rounded to the cache type
//   iq_j = rope_p(rms_norm((index_query . x)_j; index_query_norm))  j < HI;   raw = index_key . x
//   block b = rows ratio*b .. ratio*b + ratio-1 of the sequence, complete when all are visible:
//     block_key_b = rope_{ratio*b}(rms_norm(mean of its raw rows; index_key_norm))
//   row at position p sees n = p+1 rows and nb = n div ratio complete blocks:
//     score_b = sum over j of max(0, iq_j . block_key_b)
//     Sel = rows of the min(B, nb) blocks of largest score (equal scores: the lower b), and the
//           tail ratio*nb .. p
//   o_h = sum over t in Sel of softmax_t(q_h . k_{g,t} / sqrt(d)) v_{g,t},   g = h div (H / G)
//   y = out . concat over h of (o_h * sigmoid(gate_h))
//
// rms_norm(x; w) = x / sqrt(mean(x^2) + eps) * w. rope_p turns (a, b) at (i, i+P) by the angle
// p * inverse_frequency[i] to (a cos - b sin, b cos + a sin), and leaves dimensions from 2P on.
//
// Source    model.md 2.6 and 4.1; gains stored as 1 + w.
// Shapes    x [T, D], row t at position first + t; query [H*2d, D]; key, value [G*d, D];
//           out [D, H*d]; index_query [HI*di, D]; index_key [di, D]; inverse_frequency P; y [T, D].
//           first + T <= cache.context <= kContextMax.
// History   raw_from [ratio-1, di]: raw rows first-ratio+1 .. first-1, oldest first (rows before
//           the start are not read). raw_to: the same for first + T; may be raw_from's memory.
//           raw_trace [T, di], where given, gets the raw rows, for ShiftHistory.
// Effects   Writes y, cache rows first .. first+T-1, the block keys that those rows complete,
//           raw_to and raw_trace. Reads cache rows below first and block keys of blocks below
//           first div ratio.
//           y may be empty: then nothing that only y needs is computed.
// Numerics  F32 sums; Tolerance::attention. Row t is bit-identical whatever T is.
struct SparseAttention {
    MatrixView<const float> x;
    std::int64_t first = 0;
    // Where given, what `first` is when the op runs stands here, and first is the largest that it
    // may be: for calls that a queue records. In memory that the op's device reads.
    const std::int64_t* first_at = nullptr;
    Weight query;
    Weight key;
    Weight value;
    Weight out;
    Weight index_query;
    Weight index_key;
    Gain query_norm = nullptr;
    Gain key_norm = nullptr;
    Gain index_query_norm = nullptr;
    Gain index_key_norm = nullptr;
    const double* inverse_frequency = nullptr;
    AttentionShape shape;
    float epsilon = 0;
    AttentionCache cache;
    const float* raw_from = nullptr;
    float* raw_to = nullptr;
    MatrixView<float> raw_trace;
    MatrixView<float> y;
};

}  // namespace strata::op
