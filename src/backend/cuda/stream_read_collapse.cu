// The second launch of stream_read_tiles.cuh.
#include "backend/cuda/norm.cuh"
#include "backend/cuda/stream_read_bfloats.cuh"
#include "backend/cuda/stream_read_codes.cuh"

namespace strata::cuda::tiles {
namespace {

// A row's product over the number of streams from what its slices, a float each, made of it; slices
// that are none made zeros.
template <typename Part>
__device__ inline float mean_of(const Tiled& read, const float* factors, const Part& part) {
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < kSlicesMax; ++n) sum = __fmaf_rn(factors[n], part(n), sum);
    return sum * read.share;
}

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
    __device__ float mean(const Tiled& read, int i, const float* factors) const {
        return mean_of(read, factors + i * kSlicesMax, [&](int n) { return part[i][n]; });
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
            for (int i = 0; i < read.slices; i += 2) {
                const float next = from[min(i + 1, read.slices - 1)];
                sum += from[i];
                if (i + 1 < read.slices) sum += next;
            }
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

// l of a window's rows, each thread some neighbouring products of a row: its slices' parts are all
// on their way at once.
template <int kRows>
struct LowParts {
    static constexpr int kTogether = kRows < 4 ? kRows : 4;
    static constexpr int kAcross = kLowMax / kTogether;
    static constexpr int kEach = kRows * kAcross / kReadThreads;
    static_assert(kEach * kReadThreads == kRows * kAcross);
    float part[kEach][kSlicesMax][kTogether];

    __device__ static int row(int e) {
        return (static_cast<int>(threadIdx.x) + e * kReadThreads) / kAcross;
    }
    __device__ static int product(int e) {
        return (static_cast<int>(threadIdx.x) + e * kReadThreads) % kAcross * kTogether;
    }
    __device__ static void take(const float* from, float (&to)[kTogether]) {
        if constexpr (kTogether == 4) {
            const float4 four = *reinterpret_cast<const float4*>(from);
            to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
        } else if constexpr (kTogether == 2) {
            const float2 two = *reinterpret_cast<const float2*>(from);
            to[0] = two.x, to[1] = two.y;
        } else {
            to[0] = *from;
        }
    }
    __device__ void load(const Tiled& read, int first) {
        const int all = read.all_slices();
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
            const int t = first + row(e);
            const bool there = t < read.rows && product(e) < read.low;
            const float* from = read.partial + t * all * read.stride() + product(e);
#pragma unroll
            for (int n = 0; n < kSlicesMax; ++n) {
#pragma unroll
                for (int i = 0; i < kTogether; ++i) part[e][n][i] = 0.0f;
                if (there && n < all) take(from + n * read.stride(), part[e][n]);
            }
        }
    }
    template <typename Low>
    __device__ void store(const Tiled& read, const float* factors, std::byte* low) const {
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
            float values[kTogether];
#pragma unroll
            for (int i = 0; i < kTogether; ++i) {
                values[i] = silu(mean_of(read, factors + row(e) * kSlicesMax,
                                         [&](int n) { return part[e][n][i]; }));
            }
            Low::put(low, row(e), product(e), values);
        }
        __syncthreads();
    }
};

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

// x of kColumns columns, and the residual written back: block (columns, 0, window), the last one
// of a window's writes inject. A warp has eight columns of all streams and some columns of up.
template <typename Form, int kRows>
__global__ void __launch_bounds__(kReadThreads, kRows == kWindow ? 1 : 2)
    collapse_kernel(const __grid_constant__ Tiled read) {
    __shared__ float gates[kSets * kLowWarps][kStreamsMax * kEight * kWindow];
    __shared__ float factors[kRows * kSlicesMax];
    using Low = typename Form::template Low<kRows>;
    alignas(16) __shared__ std::byte low[Low::kBytes];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    Low weights;
    weights.ask(read);
    follow_earlier_kernels();
    const int first = static_cast<int>(blockIdx.z) * kWindow;
    if (static_cast<int>(blockIdx.x) * kColumns >= read.width) {
        return store_inject<kRows>(read, first, factors);
    }
    LowParts<kRows> parts;
    parts.load(read, first);
    const auto thread = static_cast<int>(threadIdx.x);
    constexpr int kTasks = kStreamsMax * kColumns * kRows;
    constexpr int kEach = (kTasks + kReadThreads - 1) / kReadThreads;
    Finish finish[kEach];
#pragma unroll
    for (int n = 0; n < kEach; ++n) finish[n].load(read, first, thread + n * kReadThreads);
    find_factors<kRows>(read, first, factors);
    weights.arrive();
    parts.template store<Low>(read, factors, low);

    weights.multiply(read, low, gates[warp]);
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

template <typename Form, int kRows>
void launch_rows(const Tiled& read, Queue& queue) {
    const auto columns = static_cast<unsigned>((read.width + kColumns - 1) / kColumns);
    const unsigned injects = read.products > read.low ? 1 : 0;
    launch_dependent(queue,
                     {dim3(columns + injects, 1, windows_of(read)), kReadThreads,
                      Form::template Low<kRows>::shared_bytes(read)},
                     collapse_kernel<Form, kRows>, read);
}

template <typename Form>
void launch_form(const Tiled& read, Queue& queue) {
    if (read.rows == 1) {
        launch_rows<Form, 1>(read, queue);
    } else if (read.rows == 2) {
        launch_rows<Form, 2>(read, queue);
    } else if (read.rows <= 4) {
        launch_rows<Form, 4>(read, queue);
    } else {
        launch_rows<Form, kWindow>(read, queue);
    }
}

}  // namespace

void collapse(const Tiled& read, quant::Type type, Queue& queue) {
    if (type == quant::Type::q8_0) return launch_form<Codes>(read, queue);
    launch_form<Bfloats>(read, queue);
}

}  // namespace strata::cuda::tiles
