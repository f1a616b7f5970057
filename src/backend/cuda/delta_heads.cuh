// What blocks of the gated delta net share that each have a value head or some of its columns.
#pragma once

#include "backend/cuda/delta.cuh"
#include "base/check.h"
#include "device/tensor.h"
#include "op/delta_net.h"

namespace strata::cuda {

inline void check_shape(const op::DeltaShape& shape) {
    STRATA_CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0);
    STRATA_CHECK(shape.key_dim > 0 && shape.value_dim > 0 && shape.kernel > 0);
}

// The columns of value head blockIdx.x that a block has: those of part blockIdx.y.
struct HeadPart {
    int first;
    int columns;

    __device__ HeadPart(const op::DeltaShape& shape, int columns_)
        : first(static_cast<int>(blockIdx.y) * columns_),
          columns(columns_ == 0 ? shape.value_dim : columns_) {}
};

// The channels of a part of value head h: its key head's queries and keys, and its values.
struct HeadChannels {
    int key_dim;
    int values;
    std::int64_t query;
    std::int64_t key;
    std::int64_t value;

    __device__ HeadChannels(const op::DeltaShape& shape, op::HeadOrder order, int h,
                            const HeadPart& part)
        : key_dim(shape.key_dim),
          values(part.columns),
          query(std::int64_t{delta_key_head(shape, order, h)} * shape.key_dim),
          key(std::int64_t{shape.key_heads} * shape.key_dim + query),
          value(2 * std::int64_t{shape.key_heads} * shape.key_dim +
                std::int64_t{h} * shape.value_dim + part.first) {}
    __device__ int count() const { return 2 * key_dim + values; }
    __device__ std::int64_t at(int i) const {
        return i < key_dim       ? query + i
               : i < 2 * key_dim ? key + i - key_dim
                                 : value + i - 2 * key_dim;
    }
};

// to = the last rows of (from ++ u[0 .. rows)), of the channels that the part of value head h
// answers for. A thread walks down a channel: `to` may be `from` where nobody else reads it.
template <int kThreads>
__device__ void keep_history(const op::DeltaShape& shape, op::HeadOrder order, int h,
                             const HeadPart& part, const float* from, float* to,
                             MatrixView<const float> u, std::int64_t rows) {
    constexpr int kTogether = 4;  // rows that are asked for at once
    const int kept = shape.kernel - 1;
    const HeadChannels channels(shape, order, h, part);
    const int first = part.first == 0 && owns_key(shape, order, h) ? 0 : 2 * shape.key_dim;
#pragma unroll 1
    for (int i = first + static_cast<int>(threadIdx.x); i < channels.count(); i += kThreads) {
        const std::int64_t channel = channels.at(i);
#pragma unroll 1
        for (int r = 0; r < kept; r += kTogether) {
            float value[kTogether];
#pragma unroll
            for (int j = 0; j < kTogether; ++j) {
                const std::int64_t row = min(r + j, kept - 1) + rows;
                value[j] = row < kept ? from[row * u.cols + channel] : u.row(row - kept)[channel];
            }
#pragma unroll
            for (int j = 0; j < kTogether; ++j) {
                if (r + j < kept) to[(r + j) * u.cols + channel] = value[j];
            }
        }
    }
}

}  // namespace strata::cuda
