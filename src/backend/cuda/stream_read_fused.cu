// Op StreamRead in two launches, each bounded by reading its weight once for up to eight rows.
//
// The norm of a stream is a factor of its part of down . X, so the first launch needs no statistic
// ahead of it: it multiplies down with R * norm in slices that lie within one stream, and sums the
// squares of the slice. The second puts slices and factors together, which is little work that
// every block does for itself, and goes on to x. A launch asks for its weights before it waits for
// what the launch before it writes.
#include "backend/cuda/eight.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/stream_read.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRowsMax = 8;      // of x, that go through a weight together
constexpr int kSliceEights = 5;  // a lane holds of each row of down
constexpr int kWeightRows = 2;   // of down, a warp
constexpr int kLowEights = 5;    // a lane holds of each row of up
constexpr int kLowLanes = 8;     // lanes that share a row of up
constexpr int kColumns = 2;      // of x, a warp
constexpr int kStreamsMax = kWarp / kLowLanes;
constexpr int kSliceMax = kSliceEights * kWarp * kEight;
constexpr int kLowMax = kLowEights * kLowLanes * kEight;
constexpr int kSlicesAllMax = 16;  // of all streams

// Slices of a stream of this width; 0: no division fits.
int slices_of(std::int64_t width) {
    for (int n = 1; n <= 16; ++n) {
        if (width % (kEight * n) == 0 && width / n <= kSliceMax) return n;
    }
    return 0;
}

struct Fused {
    op::StreamRead args;
    int slices = 0;                // of a stream
    int products = 0;              // rows of down, then of inject_weight
    float* partial = nullptr;      // [T, S * slices, products]
    float* squares = nullptr;      // [T, S * slices]
    float* inject_from = nullptr;  // [T, S]: block_inject, which inject may overwrite

    __device__ int all_slices() const { return args.streams * slices; }
    __device__ const std::byte* weight_row(int r) const {
        const auto down = static_cast<int>(args.down.rows);
        return r < down ? args.down.row(r) : args.inject_weight.row(r - down);
    }
    // A value of the residual once the block before is written into it.
    __device__ float folded(std::int64_t t, int s, std::int64_t c, float inject) const {
        const float value = args.residual.row(t)[s * args.x.cols + c];
        return args.block_out.empty() ? value : value + inject * args.block_out.row(t)[c];
    }
};

// Writes the rows' values of a slice, times norm, to `values`, and the sums of squares.
template <int kRows>
__device__ void take_slice(const Fused& fused, std::int64_t first, int rows, int slice,
                           float* values) {
    __shared__ float sums[kWarps];
    const op::StreamRead& args = fused.args;
    const int s = slice / fused.slices;
    const auto width = static_cast<int>(args.x.cols) / fused.slices;
    const int from = slice % fused.slices * width;
    const float* norm = args.norm + s * args.x.cols + from;
    for (int i = 0; i < rows; ++i) {
        const std::int64_t t = first + i;
        const float inject = args.block_out.empty() ? 0.0f : args.block_inject.row(t)[s];
        float* row = values + i * width;
        // All loads are on their way before the first is used.
        constexpr int kEach = kSliceMax / kThreads;
        float folded[kEach];
        float gains[kEach];
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
            const int c = static_cast<int>(threadIdx.x) + j * kThreads;
            folded[j] = c < width ? fused.folded(t, s, from + c, inject) : 0.0f;
            gains[j] = c < width ? norm[c] : 0.0f;
        }
        float squares = 0.0f;
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
            const int c = static_cast<int>(threadIdx.x) + j * kThreads;
            if (c >= width) continue;
            squares = __fmaf_rn(folded[j], folded[j], squares);
            row[eight_at(c, width / kEight)] = folded[j] * gains[j];
        }
        if (blockIdx.x != 0) continue;
        squares = block_sum<kThreads>(squares, sums);
        if (threadIdx.x != 0) continue;
        fused.squares[t * fused.all_slices() + slice] = squares;
        if (slice % fused.slices == 0) fused.inject_from[t * args.streams + s] = inject;
    }
    __syncthreads();
}

// partial = down and inject_weight . (R * norm), of one slice: block (group of weight rows, slice,
// group of rows).
template <typename Eight, int kRows>
__global__ void __launch_bounds__(kThreads, 2) multiply_slice(Fused fused) {
    const op::StreamRead& args = fused.args;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const auto slice = static_cast<int>(blockIdx.y);
    const int eights = static_cast<int>(args.x.cols) / fused.slices / kEight;
    const int row = (static_cast<int>(blockIdx.x) * kWarps + warp) * kWeightRows;
    Eight weights[kWeightRows][kSliceEights];
#pragma unroll
    for (int n = 0; n < kWeightRows; ++n) {
#pragma unroll
        for (int j = 0; j < kSliceEights; ++j) {
            const int at = lane + j * kWarp;
            if (row + n < fused.products && at < eights) {
                weights[n][j] = Eight::load(fused.weight_row(row + n), slice * eights + at);
            }
        }
    }
    follow_earlier_kernels();
    const std::int64_t first = std::int64_t{blockIdx.z} * kRows;
    const auto rows = static_cast<int>(min(std::int64_t{kRows}, args.x.rows - first));
    auto* values = reinterpret_cast<float*>(shared_bytes());
    take_slice<kRows>(fused, first, rows, slice, values);

    float sums[kWeightRows][kRows] = {};
#pragma unroll
    for (int j = 0; j < kSliceEights; ++j) {
        const int at = lane + j * kWarp;
        if (at >= eights) continue;
#pragma unroll
        for (int n = 0; n < kWeightRows; ++n) {
            if (row + n >= fused.products) continue;
            float w[kEight];
            weights[n][j].unpack(w);
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
                if (i < rows) {
                    sums[n][i] = add_eight(w, values + i * eights * kEight, at, eights, sums[n][i]);
                }
            }
        }
    }
#pragma unroll
    for (int n = 0; n < kWeightRows; ++n) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            const float sum = warp_sum(sums[n][i]);
            if (lane == 0 && i < rows && row + n < fused.products) {
                const std::int64_t part = (first + i) * fused.all_slices() + slice;
                fused.partial[part * fused.products + row + n] = sum;
            }
        }
    }
}

// What every block of the second launch makes for itself: the streams' factors [kRows, S], l in
// the order of eight_at [kRows, L]; the first block also writes inject.
// The slices' parts of one product, all on their way at once.
struct SliceParts {
    float part[kSlicesAllMax];

    __device__ void load(const Fused& fused, std::int64_t t, int product) {
        const int all = fused.all_slices();
        const float* from = fused.partial + t * all * fused.products + product;
#pragma unroll
        for (int n = 0; n < kSlicesAllMax; ++n) {
            part[n] = n < all ? from[n * fused.products] : 0.0f;
        }
    }
    __device__ float sum(const Fused& fused, const float* factors) const {
        float all = 0.0f;
        float stream = 0.0f;
#pragma unroll
        for (int n = 0; n < kSlicesAllMax; ++n) {
            if (n >= fused.all_slices()) break;
            stream += part[n];
            if ((n + 1) % fused.slices != 0) continue;
            all = __fmaf_rn(factors[n / fused.slices], stream, all);
            stream = 0.0f;
        }
        return all;
    }
};

template <int kRows>
__device__ void put_together(const Fused& fused, std::int64_t first, int rows, float* factors,
                             float* low) {
    const op::StreamRead& args = fused.args;
    const auto down = static_cast<int>(args.down.rows);
    const auto thread = static_cast<int>(threadIdx.x);
    const int products = blockIdx.x == 0 ? fused.products : down;
    SliceParts parts;
    if (thread < rows * products) parts.load(fused, first + thread / products, thread % products);
    if (thread < rows * args.streams) {
        const int s = thread % args.streams;
        const std::int64_t part =
            (first + thread / args.streams) * fused.all_slices() + s * fused.slices;
        float squares = 0.0f;
        for (int n = 0; n < fused.slices; ++n) squares += fused.squares[part + n];
        factors[thread] = inverse_rms(squares, args.x.cols, args.epsilon);
    }
    __syncthreads();
    const float share = 1.0f / static_cast<float>(args.streams);
    for (int at = thread; at < rows * products; at += kThreads) {
        const int i = at / products;
        const int r = at % products;
        if (at != thread) parts.load(fused, first + i, r);
        const float sum = parts.sum(fused, factors + i * args.streams);
        if (r < down) {
            low[i * down + eight_at(r, down / kEight)] = silu(sum * share);
        } else {
            args.inject.row(first + i)[r - down] = 2.0f * sigmoid(sum * share);
        }
    }
    __syncthreads();
}

// x of one column, from the product of up with l that the lanes of this one's stream and row hold:
// lane i of the eight of a stream goes on with row i of x.
struct Column {
    bool own;      // this lane goes on with one
    float stream;  // the residual with the block before
    float gain;

    __device__ void load(const Fused& fused, std::int64_t first, int rows, int s, int part,
                         std::int64_t column) {
        const op::StreamRead& args = fused.args;
        const std::int64_t t = first + part;
        own = s < args.streams && column < args.x.cols && part < rows;
        if (!own) return;
        const float inject =
            args.block_out.empty() ? 0.0f : fused.inject_from[t * args.streams + s];
        stream = fused.folded(t, s, column, inject);
        gain = args.norm[s * args.x.cols + column];
    }
};

template <int kRows>
__device__ void finish_column(const Fused& fused, std::int64_t first, int s, int part,
                              std::int64_t column, const Column& loaded, float gate,
                              const float* factors) {
    const op::StreamRead& args = fused.args;
    const std::int64_t t = first + part;
    const bool own = loaded.own;
    float value = 0.0f;
    if (own) {
        if (!args.block_out.empty()) {
            args.residual.row(t)[s * args.x.cols + column] = loaded.stream;
        }
        value = sigmoid(gate) * (loaded.stream * factors[part * args.streams + s] * loaded.gain);
    }
    for (int by = kWarp / 2; by >= kLowLanes; by /= 2) {
        value += __shfl_xor_sync(kAllLanes, value, by);
    }
    if (own && s == 0) args.x.row(t)[column] = value / static_cast<float>(args.streams);
}

// x of some columns, and the residual written back: block (group of columns, 0, group of rows).
// Lanes 8s .. 8s+7 of a warp multiply the row of up of stream s.
template <typename Eight, int kRows>
__global__ void __launch_bounds__(kThreads, 2) collapse_streams(Fused fused) {
    const op::StreamRead& args = fused.args;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int s = static_cast<int>(threadIdx.x) % kWarp / kLowLanes;
    const int part = static_cast<int>(threadIdx.x) % kLowLanes;
    const std::int64_t column = (std::int64_t{blockIdx.x} * kWarps + warp) * kColumns;
    const int eights = static_cast<int>(args.down.rows) / kEight;
    Eight weights[kColumns][kLowEights];
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int j = 0; j < kLowEights; ++j) {
            const int at = part + j * kLowLanes;
            if (s < args.streams && column + n < args.x.cols && at < eights) {
                weights[n][j] = Eight::load(args.up.row(s * args.x.cols + column + n), at);
            }
        }
    }
    follow_earlier_kernels();
    __shared__ float factors[kRows * kStreamsMax];
    auto* low = reinterpret_cast<float*>(shared_bytes());
    const std::int64_t first = std::int64_t{blockIdx.z} * kRows;
    const auto rows = static_cast<int>(min(std::int64_t{kRows}, args.x.rows - first));
    Column columns[kColumns];
#pragma unroll
    for (int n = 0; n < kColumns; ++n) columns[n].load(fused, first, rows, s, part, column + n);
    put_together<kRows>(fused, first, rows, factors, low);

#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
        float sums[kRows] = {};
#pragma unroll
        for (int j = 0; j < kLowEights; ++j) {
            const int at = part + j * kLowLanes;
            if (s >= args.streams || column + n >= args.x.cols || at >= eights) continue;
            float w[kEight];
            weights[n][j].unpack(w);
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
                if (i < rows) {
                    sums[i] = add_eight(w, low + i * eights * kEight, at, eights, sums[i]);
                }
            }
        }
        float gate = 0.0f;  // of this lane's row
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            float sum = sums[i];
            for (int by = kLowLanes / 2; by > 0; by /= 2) {
                sum += __shfl_xor_sync(kAllLanes, sum, by);
            }
            if (part == i) gate = sum;
        }
        finish_column<kRows>(fused, first, s, part, column + n, columns[n], gate, factors);
    }
}

template <int kRows>
void launch_both(const Fused& fused, Queue& queue) {
    const op::StreamRead& args = fused.args;
    const auto tiles = static_cast<unsigned>((args.x.rows + kRows - 1) / kRows);
    const auto ceil = [](std::int64_t n, std::int64_t by) {
        return static_cast<unsigned>((n + by - 1) / by);
    };
    with_eight(args.down.type, [&](auto eight) {
        const dim3 blocks(ceil(fused.products, kWarps * kWeightRows),
                          static_cast<unsigned>(args.streams * fused.slices), tiles);
        const std::size_t bytes =
            static_cast<std::size_t>(kRows * args.x.cols / fused.slices) * sizeof(float);
        launch(queue, {blocks, kThreads, bytes, true}, multiply_slice<decltype(eight), kRows>,
               fused);
    });
    with_eight(args.up.type, [&](auto eight) {
        const dim3 blocks(ceil(args.x.cols, kWarps * kColumns), 1, tiles);
        const std::size_t bytes = static_cast<std::size_t>(kRows * args.down.rows) * sizeof(float);
        launch(queue, {blocks, kThreads, bytes, true}, collapse_streams<decltype(eight), kRows>,
               fused);
    });
}

}  // namespace

bool reads_streams_fused(const op::StreamRead& args) {
    const bool injects = !args.inject_weight.empty();
    return args.streams <= kStreamsMax && slices_of(args.x.cols) > 0 &&
           args.streams * slices_of(args.x.cols) <= kSlicesAllMax && args.down.rows % kEight == 0 &&
           args.down.rows <= kLowMax && reads_as_eights(args.down) && reads_as_eights(args.up) &&
           (!injects ||
            (args.inject_weight.type == args.down.type && reads_as_eights(args.inject_weight)));
}

void stream_read_fused(const op::StreamRead& args, Queue& queue) {
    Fused fused{.args = args, .slices = slices_of(args.x.cols)};
    const std::int64_t parts = args.x.rows * args.streams * fused.slices;
    fused.products = static_cast<int>(args.down.rows + args.inject_weight.rows);
    fused.partial = queue.take<float>(parts * fused.products);
    fused.squares = queue.take<float>(parts);
    fused.inject_from = queue.take<float>(args.x.rows * args.streams);
    if (args.x.rows == 1) {
        launch_both<1>(fused, queue);
    } else if (args.x.rows == 2) {
        launch_both<2>(fused, queue);
    } else if (args.x.rows <= 4) {
        launch_both<4>(fused, queue);
    } else {
        launch_both<kRowsMax>(fused, queue);
    }
}

}  // namespace strata::cuda
