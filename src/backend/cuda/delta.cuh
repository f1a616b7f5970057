// The step of the gated delta net on one value head, and what a block holds for it.
#pragma once

#include "backend/cuda/intrinsics.cuh"
#include "op/delta_net.h"

namespace strata::cuda {

// A norm of zero must not divide: model.md 2.5.
inline constexpr float kDeltaNormFloor = 1e-6f;

// Rows that a block prepares together.
inline constexpr int kDeltaRows = 8;

// The key head of value head h.
inline __device__ int delta_key_head(const op::DeltaShape& shape, op::HeadOrder order, int h) {
    if (order == op::HeadOrder::tiled) return h % shape.key_heads;
    return h / (shape.value_heads / shape.key_heads);
}

// Past the bound the difference of log(1 + e^x) from x is under half a unit in the last place.
__device__ inline float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// What kDeltaRows rows bring to one head, in shared memory.
struct DeltaTile {
    float* q;      // [rows, dk], units over sqrt(dk)
    float* k;      // [rows, dk], units
    float* v;      // [rows, dv]
    float* o;      // [rows, o_stride], or in device memory
    float* beta;   // [rows]
    float* alpha;  // [rows]
    std::int64_t o_stride;

    __device__ DeltaTile(float* memory, const op::DeltaShape& shape)
        : q(memory),
          k(q + kDeltaRows * shape.key_dim),
          v(k + kDeltaRows * shape.key_dim),
          o(v + kDeltaRows * shape.value_dim),
          beta(o + kDeltaRows * shape.value_dim),
          alpha(beta + kDeltaRows),
          o_stride(shape.value_dim) {}
};

inline std::size_t delta_tile_bytes(const op::DeltaShape& shape) {
    return static_cast<std::size_t>(kDeltaRows) * sizeof(float) *
           static_cast<std::size_t>(2 * shape.key_dim + 2 * shape.value_dim + 2);
}

// Makes the queries and keys of `rows` rows units, a warp a head and row.
template <int kThreads>
__device__ void make_units(const DeltaTile& tile, int dk, int rows) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) / kWarp; i < 2 * rows; i += kThreads / kWarp) {
        const bool query = i < rows;
        float* x = query ? tile.q + i * dk : tile.k + (i - rows) * dk;
        float squares = 0.0f;
        for (int c = lane; c < dk; c += kWarp) squares = __fmaf_rn(x[c], x[c], squares);
        float scale = 1.0f / sqrtf(warp_sum(squares) + kDeltaNormFloor);
        if (query) scale *= 1.0f / sqrtf(static_cast<float>(dk));
        for (int c = lane; c < dk; c += kWarp) x[c] *= scale;
    }
}

// The memory of a head of any shape: a thread a column, in device memory.
struct DeltaColumns {
    static constexpr int kThreads = 128;
    static constexpr int kColumns = 0;  // of the head that a block has; 0: all

    int dk;
    int dv;
    const float* from;
    float* to;

    __device__ DeltaColumns(const op::DeltaShape& shape, const float* from_, float* to_)
        : dk(shape.key_dim), dv(shape.value_dim), from(from_), to(to_) {}

    // One row: d = beta (v - alpha M^T k);  M <- alpha M + k d^T;  o = M^T q.
    template <bool kRead>
    __device__ void step(const DeltaTile& tile, int row) {
        const float* k = tile.k + row * dk;
        const float* q = tile.q + row * dk;
        const float alpha = tile.alpha[row];
        for (int j = static_cast<int>(threadIdx.x); j < dv; j += kThreads) {
            float seen = 0.0f;
            for (int i = 0; i < dk; ++i) seen = __fmaf_rn(k[i], from[i * dv + j], seen);
            const float d = tile.beta[row] * (tile.v[row * dv + j] - alpha * seen);
            float o = 0.0f;
            for (int i = 0; i < dk; ++i) {
                const float m = __fmaf_rn(k[i], d, alpha * from[i * dv + j]);
                to[i * dv + j] = m;
                if constexpr (kRead) o = __fmaf_rn(q[i], m, o);
            }
            if constexpr (kRead) tile.o[row * tile.o_stride + j] = o;
        }
        from = to;
    }
    __device__ void finish() const {}
};

// Columns of the memory of a head of kDim x kDim in the registers of a block: those of part
// blockIdx.y, kOwn of them. A warp has kWarpColumns columns: lane l has four of them in rows
// l / kLanesAcross, + kStride, ...; sums over rows are exchanges within the warp, so that the rows
// of a window need no barrier between them.
template <int kDim, int kOwn>
struct DeltaRegisters {
    static constexpr int kThreads = kOwn * 4;
    static constexpr int kColumns = kOwn == kDim ? 0 : kOwn;
    static constexpr int kWarpColumns = 8;
    static constexpr int kLanesAcross = kWarpColumns / 4;
    static constexpr int kStride = kWarp / kLanesAcross;
    static constexpr int kHeld = kDim / kStride;
    static_assert(kThreads / kWarp * kWarpColumns == kOwn && kDim % kOwn == 0);

    float memory[kHeld][4];
    float* to;
    int column;
    int first;

    __device__ DeltaRegisters(const op::DeltaShape&, const float* from, float* to_) : to(to_) {
        const int lane = static_cast<int>(threadIdx.x) % kWarp;
        column = static_cast<int>(blockIdx.y) * kOwn +
                 static_cast<int>(threadIdx.x) / kWarp * kWarpColumns + lane % kLanesAcross * 4;
        first = lane / kLanesAcross;
#pragma unroll
        for (int n = 0; n < kHeld; ++n) {
            const float4 four =
                *reinterpret_cast<const float4*>(from + (first + n * kStride) * kDim + column);
            memory[n][0] = four.x, memory[n][1] = four.y;
            memory[n][2] = four.z, memory[n][3] = four.w;
        }
    }

    // Sums of the four columns over all rows.
    __device__ static void sum_rows(float* sums) {
#pragma unroll
        for (int by = kWarp / 2; by >= kLanesAcross; by /= 2) {
#pragma unroll
            for (int c = 0; c < 4; ++c) sums[c] += __shfl_xor_sync(kAllLanes, sums[c], by);
        }
    }

    template <bool kRead>
    __device__ void step(const DeltaTile& tile, int row) {
        const float alpha = tile.alpha[row];
        const float beta = tile.beta[row];
        float k[kHeld];
        float seen[4] = {};
#pragma unroll
        for (int n = 0; n < kHeld; ++n) {
            k[n] = tile.k[row * kDim + first + n * kStride];
#pragma unroll
            for (int c = 0; c < 4; ++c) seen[c] = __fmaf_rn(k[n], memory[n][c], seen[c]);
        }
        sum_rows(seen);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const float d = beta * (tile.v[row * kDim + column + c] - alpha * seen[c]);
#pragma unroll
            for (int n = 0; n < kHeld; ++n) {
                memory[n][c] = __fmaf_rn(k[n], d, alpha * memory[n][c]);
            }
        }
        if constexpr (kRead) read(tile, row);
    }

    // o = M^T q
    __device__ void read(const DeltaTile& tile, int row) const {
        float o[4] = {};
#pragma unroll
        for (int n = 0; n < kHeld; ++n) {
            const float q = tile.q[row * kDim + first + n * kStride];
#pragma unroll
            for (int c = 0; c < 4; ++c) o[c] = __fmaf_rn(q, memory[n][c], o[c]);
        }
        sum_rows(o);
        if (first != 0) return;
#pragma unroll
        for (int c = 0; c < 4; ++c) tile.o[row * tile.o_stride + column + c] = o[c];
    }

    __device__ void finish() const {
#pragma unroll
        for (int n = 0; n < kHeld; ++n) {
            *reinterpret_cast<float4*>(to + (first + n * kStride) * kDim + column) =
                make_float4(memory[n][0], memory[n][1], memory[n][2], memory[n][3]);
        }
    }
};

// use(type of the memory) for a shape; `aligned`: memories begin where a lane may load four values.
template <typename Use>
void with_delta_memory(const op::DeltaShape& shape, bool aligned, Use use) {
    const auto is = [&](int dim) {
        return aligned && shape.key_dim == dim && shape.value_dim == dim;
    };
    // What comes after takes two heads a warp.
    if (is(128) && shape.value_heads % 2 == 0) {
        return use.template operator()<DeltaRegisters<128, 32>>();
    }
    if (is(32)) return use.template operator()<DeltaRegisters<32, 32>>();
    use.template operator()<DeltaColumns>();
}

// Whether value head h answers for what its key head leaves.
__device__ inline bool owns_key(const op::DeltaShape& shape, op::HeadOrder order, int h) {
    if (order == op::HeadOrder::tiled) return h < shape.key_heads;
    return h % (shape.value_heads / shape.key_heads) == 0;
}

}  // namespace strata::cuda
