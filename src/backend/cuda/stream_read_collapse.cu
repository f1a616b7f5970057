// The second launch of stream_read_tiles.cuh.
#include "backend/cuda/norm.cuh"
#include "backend/cuda/stream_read_tiles.cuh"

namespace strata::cuda::tiles {
namespace {

constexpr int kSets = 2;  // of eight columns of x, a block
constexpr int kColumns = kSets * kEight;
constexpr int kReadThreads = kSets * kLowWarps * kWarp;
// Of l in shared memory, in 16-bit values: neighbouring rows lie in different banks.
constexpr int kLowStride = kLowMax + kSpan;

// The slices' parts of product `product` for the rows of a window, all on their way at once.
template <int kRows>
struct SliceParts {
    float part[kRows][kSlicesMax];

    __device__ void load(const Tiled& read, int first, int product) {
        const int all = read.all_slices();
        const int stride = read.stride();
        const float* from = read.partial + first * all * stride + product;
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            const bool row = first + i < read.rows;
#pragma unroll
            for (int n = 0; n < kSlicesMax; ++n) {
                part[i][n] = row && n < all ? from[n * stride] : 0.0f;
            }
            from += all * stride;
        }
    }
    // The product over the number of streams; parts that are none are zeros.
    __device__ float mean(const Tiled& read, int i, const float* factors) const {
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < kSlicesMax; ++n) {
            sum = __fmaf_rn(factors[i * kSlicesMax + n], part[i][n], sum);
        }
        return sum * read.share;
    }
};

// By slice the factor of its stream, of a window's rows, [kRows, kSlicesMax]; all of the block call
// it.
template <int kRows>
__device__ inline void find_factors(const Tiled& read, int first, float* factors) {
    const auto thread = static_cast<int>(threadIdx.x);
    const int n = thread % kSlicesMax;
    const int t = first + thread / kSlicesMax;
    if (thread < kRows * kSlicesMax) {
        float sum = 0.0f;
        if (n < read.all_slices() && t < read.rows) {
            const float* from =
                read.squares + t * read.all_slices() + n / read.slices * read.slices;
#pragma unroll 1
            for (int i = 0; i < read.slices; ++i) sum += from[i];
        }
        factors[thread] = inverse_rms(sum, read.width, read.epsilon);
    }
    __syncthreads();
}

// What a thread brings to x: a column of a row, of one stream. The four streams of a column are
// neighbouring lanes.
struct Finish {
    int t;       // from the window's first on
    int column;  // of the block
    int s;
    bool own;
    float stream;  // the residual with the block before
    float gain;

    __device__ void load(const Tiled& read, int first, int task) {
        s = task % kStreamsMax;
        column = task / kStreamsMax % kColumns;
        t = task / (kStreamsMax * kColumns);
        const int at = static_cast<int>(blockIdx.x) * kColumns + column;
        own = first + t < read.rows && at < read.width && s < read.streams;
        stream = 0.0f;
        gain = 0.0f;
        if (!own) return;
        stream = read.residual[residual_at(read, first)];
        gain = read.norm[s * read.width + at];
        if (read.block_out == nullptr) return;
        const float out = read.block_out[(first + t) * read.width + at];
        stream = stream + read.inject_from[(first + t) * read.streams + s] * out;
    }
    // gate: up . l of this column, row and stream. All of a warp call it.
    __device__ void store(const Tiled& read, int first, const float* factors, float gate) const {
        float value = 0.0f;
        if (own) {
            const float factor = factors[t * kSlicesMax + s * read.slices];
            value = sigmoid(gate) * (stream * factor * gain);
            if (read.block_out != nullptr) read.residual[residual_at(read, first)] = stream;
        }
        value += __shfl_xor_sync(kAllLanes, value, 1);
        value += __shfl_xor_sync(kAllLanes, value, 2);
        if (!own || s != 0) return;
        read.x[(first + t) * read.width + static_cast<int>(blockIdx.x) * kColumns + column] =
            value * read.share;
    }

  private:
    __device__ int residual_at(const Tiled& read, int first) const {
        return ((first + t) * read.streams + s) * read.width +
               static_cast<int>(blockIdx.x) * kColumns + column;
    }
};

// l of a window's rows in three parts, [kParts, kRows, kLowStride].
template <int kRows>
__device__ inline void store_low(const Tiled& read, const SliceParts<kRows>& parts,
                                 const float* factors, std::uint16_t* low) {
    const auto thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
        float value = thread < read.low ? silu(parts.mean(read, i, factors)) : 0.0f;
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
            const std::uint16_t bits = bf16_of(value);
            low[(p * kRows + i) * kLowStride + thread] = bits;
            value -= bfloat_to_float(bits);
        }
    }
    __syncthreads();
}

// inject of a window's rows.
template <int kRows>
__device__ inline void store_inject(const Tiled& read, int first, float* factors) {
    const int s = static_cast<int>(threadIdx.x);
    SliceParts<kRows> parts;
    if (s < read.streams) parts.load(read, first, read.low + s);
    find_factors<kRows>(read, first, factors);
    if (s >= read.streams) return;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
        if (first + i >= read.rows) break;
        read.inject[(first + i) * read.streams + s] = 2.0f * sigmoid(parts.mean(read, i, factors));
    }
}

// The lane's eights of up: of column g of a set of eight, of all streams.
struct LowWeights {
    uint4 eight[kLowSpans][kStreamsMax];

    __device__ void load(const Tiled& read, int column, int from) {
#pragma unroll
        for (int s = 0; s < kStreamsMax; ++s) {
            const std::int64_t row = s * read.width + column;
#pragma unroll
            for (int j = 0; j < kLowSpans; ++j) {
                const int c = from + j * kSpan;
                const bool there = s < read.streams && column < read.width && c < read.low;
                eight[j][s] =
                    there ? load_sixteen(read.up + (row * read.low + c) * 2) : uint4{0, 0, 0, 0};
            }
        }
    }
};

// gates[stream, column of the set, row] = up . l over a warp's columns of up, from `from` on.
template <int kRows>
__device__ inline void multiply_low(const LowWeights& weights, const std::uint16_t* low, int from,
                                    float* gates) {
    TileSums tiles[kStreamsMax / 2];
#pragma unroll
    for (int j = 0; j < kLowSpans; ++j) {
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
            uint4 l{0, 0, 0, 0};
            if (row_of_lane() < kRows) {
                l = *reinterpret_cast<const uint4*>(low + (p * kRows + row_of_lane()) * kLowStride +
                                                    from + j * kSpan);
            }
#pragma unroll
            for (int m = 0; m < kStreamsMax / 2; ++m) {
                tiles[m].add(weights.eight[j][2 * m], weights.eight[j][2 * m + 1], p, l.x, l.y, l.z,
                             l.w);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < kStreamsMax / 2; ++m) tiles[m].store(gates + m * kTileRows * kWindow);
}

// x of kColumns columns, and the residual written back: block (columns, 0, window), the last one
// of a window's writes inject. A warp has eight columns of all streams and some columns of up.
template <int kRows>
__global__ void __launch_bounds__(kReadThreads, kRows == kWindow ? 1 : 2)
    collapse_kernel(const __grid_constant__ Tiled read) {
    __shared__ float gates[kSets * kLowWarps][kStreamsMax * kEight * kWindow];
    __shared__ float factors[kRows * kSlicesMax];
    alignas(16) __shared__ std::uint16_t low[kParts * kRows * kLowStride];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int column =
        static_cast<int>(blockIdx.x) * kColumns + warp / kLowWarps * kEight + row_of_lane();
    const int from = warp % kLowWarps * (kLowSpans * kSpan) + eight_of_lane() * kEight;
    LowWeights weights;
    weights.load(read, column, from);
    follow_earlier_kernels();
    const int first = static_cast<int>(blockIdx.z) * kWindow;
    if (static_cast<int>(blockIdx.x) * kColumns >= read.width) {
        return store_inject<kRows>(read, first, factors);
    }
    SliceParts<kRows> parts;
    const auto thread = static_cast<int>(threadIdx.x);
    if (thread < read.low) parts.load(read, first, thread);
    constexpr int kTasks = kStreamsMax * kColumns * kRows;
    constexpr int kEach = (kTasks + kReadThreads - 1) / kReadThreads;
    Finish finish[kEach];
#pragma unroll
    for (int n = 0; n < kEach; ++n) finish[n].load(read, first, thread + n * kReadThreads);
    find_factors<kRows>(read, first, factors);
    store_low<kRows>(read, parts, factors, low);

    multiply_low<kRows>(weights, low, from, gates[warp]);
    __syncthreads();
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
        const Finish& own = finish[n];
        if (own.t >= kRows) break;  // whole warps
        const int set = own.column / kEight * kLowWarps;
        const int at = (own.s * kEight + own.column % kEight) * kWindow + own.t;
        float gate = 0.0f;
#pragma unroll
        for (int w = 0; w < kLowWarps; ++w) gate += gates[set + w][at];
        own.store(read, first, factors, gate);
    }
}

template <int kRows>
void launch_for(const Tiled& read, Queue& queue) {
    const auto columns = static_cast<unsigned>((read.width + kColumns - 1) / kColumns);
    const unsigned injects = read.products > read.low ? 1 : 0;
    launch_dependent(queue, {dim3(columns + injects, 1, windows_of(read)), kReadThreads},
                     collapse_kernel<kRows>, read);
}

}  // namespace

void collapse(const Tiled& read, Queue& queue) {
    if (read.rows == 1) {
        launch_for<1>(read, queue);
    } else if (read.rows == 2) {
        launch_for<2>(read, queue);
    } else if (read.rows <= 4) {
        launch_for<4>(read, queue);
    } else {
        launch_for<kWindow>(read, queue);
    }
}

}  // namespace strata::cuda::tiles
