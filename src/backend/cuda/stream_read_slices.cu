// The first launch of stream_read_tiles.cuh.
#include "backend/cuda/stream_read_bfloats.cuh"
#include "backend/cuda/stream_read_codes.cuh"

namespace strata::cuda::tiles {
namespace {

constexpr int kSliceThreads = kSliceWarps * kWarp;

constexpr int kFours = kWarpColumns / 4;
constexpr int kRest = kFours - kWarp;  // fours that are left when each lane has one
constexpr int kBatchMost = kWarp / kRest;
static_assert(kRest > 0 && kBatchMost * kRest == kWarp);

// R * norm of a warp's columns of up to kRows rows of x, which go to the slice. Each lane makes
// four columns of a row; then those that are left of kBatch rows have all lanes again.
template <typename Slice, int kRows>
struct Residuals {
    static constexpr int kBatch = kRows < kBatchMost ? kRows : kBatchMost;

    const Tiled& read;
    int s;
    int column;  // the warp's first
    float4 gain[2];
    std::byte* to;  // the slice's

    // The gains are asked for; no kernel writes them.
    __device__ Residuals(const Tiled& read_, int s_, int column_, std::byte* to_)
        : read(read_), s(s_), column(column_), to(to_) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int c = min(own_column(i), read.width - 4);
            const auto four = load_early<uint4>(read.norm + s * read.width + c);
            gain[i] = make_float4(__uint_as_float(four.x), __uint_as_float(four.y),
                                  __uint_as_float(four.z), __uint_as_float(four.w));
        }
    }
    // Rows t, t + 1, ... of x, of which `rows` are there, as rows `first` on of `to`; and the sum
    // of the squares of R of each, which all lanes get.
    __device__ __forceinline__ void make(int t, int first, int rows, float (&squares)[kBatch]) {
        float4 residual[kBatch + 1];
        float4 out[kBatch + 1];
        float inject[kBatch + 1];
#pragma unroll
        for (int r = 0; r <= kBatch; ++r) {
            const int row = t + min(row_of(r), rows - 1);
            const int c = min(own_column(r == kBatch ? 1 : 0), read.width - 4);
            residual[r] = *reinterpret_cast<const float4*>(
                read.residual + (row * read.streams + s) * read.width + c);
            out[r] = make_float4(0, 0, 0, 0);
            inject[r] = 0;
            if (read.block_out == nullptr) continue;
            out[r] = *reinterpret_cast<const float4*>(read.block_out + row * read.width + c);
            inject[r] = read.block_inject[row * read.streams + s];
        }
        float own[kBatch + 1];
#pragma unroll
        for (int r = 0; r <= kBatch; ++r) {
            own[r] = store(first, rows, r, residual[r], out[r], inject[r]);
        }
        const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
        for (int r = 0; r < kBatch; ++r) {
            const float rest = __shfl_sync(kAllLanes, own[kBatch], r * kRest + lane % kRest);
            squares[r] = warp_sum(own[r] + (lane < kRest ? rest : 0.0f));
        }
    }

  private:
    // Of a lane in round r, of which the last is that of what is left.
    __device__ static int row_of(int r) {
        return r == kBatch ? static_cast<int>(threadIdx.x) % kWarp / kRest : r;
    }
    __device__ static int four_of(int i) {
        const int lane = static_cast<int>(threadIdx.x) % kWarp;
        return i == 0 ? lane : kWarp + lane % kRest;
    }
    __device__ int own_column(int i) const { return column + 4 * four_of(i); }

    // Returns the sum of the squares.
    __device__ __forceinline__ float store(int first, int rows, int r, const float4& residual,
                                           const float4& out, float inject) const {
        const int i = r == kBatch ? 1 : 0;
        const bool takes = row_of(r) < rows && row_of(r) < kBatch;
        // In all rounds but the last a row is the whole warp's.
        if (!takes && !(Slice::kRoundsTogether && r == kBatch)) return 0.0f;
        float values[4] = {residual.x, residual.y, residual.z, residual.w};
        const float outs[4] = {out.x, out.y, out.z, out.w};
        const float gains[4] = {gain[i].x, gain[i].y, gain[i].z, gain[i].w};
        const bool there = own_column(i) < read.width;
        float squares = 0.0f;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            if (read.block_out != nullptr) values[n] = values[n] + inject * outs[n];
            if (!there) values[n] = 0.0f;
            squares = __fmaf_rn(values[n], values[n], squares);
            values[n] *= gains[n];
        }
        Slice::put(to, first + row_of(r), four_of(i), takes, values);
        return takes ? squares : 0.0f;
    }
};

// Adds up the warps' sums, and their squares where there are any.
__device__ inline void store_slice(const Tiled& read, int first, int slice,
                                   const float (*sums)[kTileRows * kWindow],
                                   const float (*squares)[kWindow]) {
    const auto thread = static_cast<int>(threadIdx.x);
    const int row = thread % kTileRows;
    const int i = thread / kTileRows;
    if (i < kWindow && first + i < read.rows) {
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < kSliceWarps; ++w) sum += sums[w][row * kWindow + i];
        const int at = (first + i) * read.all_slices() + slice;
        read.partial[at * read.stride() + static_cast<int>(blockIdx.x) * kTileRows + row] = sum;
    }
    if (squares != nullptr && thread < kWindow && first + thread < read.rows) {
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < kSliceWarps; ++w) sum += squares[w][thread];
        read.squares[(first + thread) * read.all_slices() + slice] = sum;
    }
}

// partial = down and inject_weight . (R * norm), of one slice: block (tile of weight rows, slice,
// window).
template <typename Form, int kRows>
__global__ void __launch_bounds__(kSliceThreads, 2)
    slices_kernel(const __grid_constant__ Tiled read) {
    using Slice = typename Form::template Slice<kRows>;
    using Own = Residuals<Slice, kRows>;
    __shared__ float sums[kSliceWarps][kTileRows * kWindow];
    __shared__ float squares[kSliceWarps][kWindow];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const auto slice = static_cast<int>(blockIdx.y);
    const int s = slice / read.slices;
    const int column = slice % read.slices * kSliceColumns + warp * kWarpColumns;
    std::byte* const shared = shared_bytes() + warp * Slice::kBytes;
    Slice own_slice;
    own_slice.ask(read, static_cast<int>(blockIdx.x) * kTileRows, s, column, shared);
    Own residuals(read, s, column, shared);
    follow_earlier_kernels();
    const int first = static_cast<int>(blockIdx.z) * kWindow;
    const int rows = min(kRows, read.rows - first);
#pragma unroll 1
    for (int batch = 0; batch < rows; batch += Own::kBatch) {
        float own[Own::kBatch];
        residuals.make(first + batch, batch, rows - batch, own);
#pragma unroll
        for (int r = 0; r < Own::kBatch; ++r) {
            if (lane == 0) squares[warp][batch + r] = own[r];
        }
    }
    own_slice.arrive(shared);
    own_slice.multiply(shared, sums[warp]);
    const bool leads = blockIdx.x == 0;  // notes the squares
    if (leads && warp == 0 && lane < rows && slice % read.slices == 0) {
        const int at = (first + lane) * read.streams + s;
        read.inject_from[at] = read.block_out != nullptr ? read.block_inject[at] : 0.0f;
    }
    __syncthreads();
    store_slice(read, first, slice, sums, leads ? squares : nullptr);
}

template <typename Form, int kRows>
void launch_rows(const Tiled& read, Queue& queue) {
    const auto tiles = static_cast<unsigned>((read.products + kTileRows - 1) / kTileRows);
    const auto slices = static_cast<unsigned>(read.streams * read.slices);
    constexpr std::size_t kBytes = Form::template Slice<kRows>::kBytes;
    launch_dependent(queue,
                     {dim3(tiles, slices, windows_of(read)), kSliceThreads, kSliceWarps * kBytes},
                     slices_kernel<Form, kRows>, read);
}

template <typename Form>
void launch_form(const Tiled& read, Queue& queue) {
    if (read.rows == 1) {
        launch_rows<Form, 1>(read, queue);
    } else if (read.rows <= kBatchMost) {
        launch_rows<Form, kBatchMost>(read, queue);
    } else {
        launch_rows<Form, kWindow>(read, queue);
    }
}

}  // namespace

void multiply_slices(const Tiled& read, quant::Type type, Queue& queue) {
    if (type == quant::Type::q8_0) return launch_form<Codes>(read, queue);
    launch_form<Bfloats>(read, queue);
}

}  // namespace strata::cuda::tiles
