// The first launch of stream_read_tiles.cuh.
#include "backend/cuda/operand.cuh"
#include "backend/cuda/stream_read_tiles.cuh"

namespace strata::cuda::tiles {
namespace {

constexpr int kSliceThreads = kSliceWarps * kWarp;

constexpr int kWarpColumns = kSliceSpans * kSpan;
constexpr int kFours = kWarpColumns / 4;
constexpr int kRest = kFours - kWarp;  // fours that are left when each lane has one
constexpr int kBatchMost = kWarp / kRest;
static_assert(kRest > 0 && kBatchMost * kRest == kWarp);

// R * norm of a warp's columns of up to kRows rows of x, in three parts, in shared memory. Each
// lane makes four columns of a row; then those that are left of kBatch rows have all lanes again.
template <int kRows>
struct Residuals {
    static constexpr int kBatch = kRows < kBatchMost ? kRows : kBatchMost;
    static constexpr int kBytes = kParts * kRows * kWarpColumns * 2;

    const Tiled& read;
    int s;
    int column;  // the warp's first
    float4 gain[2];
    std::uint16_t* to;  // [kParts, kRows, kWarpColumns]

    // The gains are asked for; no kernel writes them.
    __device__ Residuals(const Tiled& read_, int s_, int column_, std::byte* to_)
        : read(read_), s(s_), column(column_), to(reinterpret_cast<std::uint16_t*>(to_)) {
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
        if (row_of(r) >= rows || row_of(r) >= kBatch) return 0.0f;
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
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
            const std::uint32_t low = bf16_pair(values[0], values[1]);
            const std::uint32_t high = bf16_pair(values[2], values[3]);
            *reinterpret_cast<uint2*>(to + (p * kRows + first + row_of(r)) * kWarpColumns +
                                      4 * four_of(i)) = make_uint2(low, high);
            values[0] -= bfloat_to_float(static_cast<std::uint16_t>(low));
            values[1] -= bfloat_to_float(static_cast<std::uint16_t>(low >> 16));
            values[2] -= bfloat_to_float(static_cast<std::uint16_t>(high));
            values[3] -= bfloat_to_float(static_cast<std::uint16_t>(high >> 16));
        }
        return squares;
    }
};

// The lane's eights of weight rows g and g + 8 of a tile. Where there are none, of rows that are
// not asked for or of columns that R * norm has zeros for, they are others.
struct SliceWeights {
    uint4 upper[kSliceSpans];
    uint4 lower[kSliceSpans];

    __device__ void load(const Tiled& read, int first_row, int s, int column) {
        load_row(read, first_row + row_of_lane(), s, column, upper);
        load_row(read, first_row + 8 + row_of_lane(), s, column, lower);
    }

  private:
    __device__ static void load_row(const Tiled& read, int row, int s, int column,
                                    uint4 (&to)[kSliceSpans]) {
        const int there = min(row, read.products - 1);
        const bool is_down = there < read.low;
        const std::byte* from = is_down ? read.down : read.inject_weight;
        const int own = is_down ? there : there - read.low;
        from += (std::int64_t{own} * read.all_columns() + s * read.width) * 2;
#pragma unroll
        for (int j = 0; j < kSliceSpans; ++j) {
            to[j] = load_early<uint4>(from + min(column + j * kSpan, read.width - kEight) * 2);
        }
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

// The products of the lane's weights with the rows in shared memory.
template <int kRows>
__device__ __forceinline__ void multiply_rows(const SliceWeights& weights, const std::byte* rows,
                                              float* sums) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(rows);
    TileSums tile;
#pragma unroll
    for (int j = 0; j < kSliceSpans; ++j) {
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
            uint4 x{0, 0, 0, 0};
            if (row_of_lane() < kRows) {
                x = *reinterpret_cast<const uint4*>(from +
                                                    (p * kRows + row_of_lane()) * kWarpColumns +
                                                    j * kSpan + eight_of_lane() * kEight);
            }
            tile.add(weights.upper[j], weights.lower[j], p, x.x, x.y, x.z, x.w);
        }
    }
    tile.store(sums);
}

// partial = down and inject_weight . (R * norm), of one slice: block (tile of weight rows, slice,
// window).
template <int kRows>
__global__ void __launch_bounds__(kSliceThreads, 2)
    slices_kernel(const __grid_constant__ Tiled read) {
    using Own = Residuals<kRows>;
    __shared__ float sums[kSliceWarps][kTileRows * kWindow];
    __shared__ float squares[kSliceWarps][kWindow];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const auto slice = static_cast<int>(blockIdx.y);
    const int s = slice / read.slices;
    const int column = slice % read.slices * kSliceColumns + warp * kWarpColumns;
    std::byte* const made = shared_bytes() + warp * Own::kBytes;
    SliceWeights weights;
    weights.load(read, static_cast<int>(blockIdx.x) * kTileRows, s,
                 column + eight_of_lane() * kEight);
    Own residuals(read, s, column, made);
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
    __syncwarp();
    multiply_rows<kRows>(weights, made, sums[warp]);
    const bool leads = blockIdx.x == 0;  // notes the squares
    if (leads && warp == 0 && lane < rows && slice % read.slices == 0) {
        const int at = (first + lane) * read.streams + s;
        read.inject_from[at] = read.block_out != nullptr ? read.block_inject[at] : 0.0f;
    }
    __syncthreads();
    store_slice(read, first, slice, sums, leads ? squares : nullptr);
}

template <int kRows>
void launch_for(const Tiled& read, Queue& queue) {
    const auto tiles = static_cast<unsigned>((read.products + kTileRows - 1) / kTileRows);
    const auto slices = static_cast<unsigned>(read.streams * read.slices);
    launch_dependent(queue,
                     {dim3(tiles, slices, windows_of(read)), kSliceThreads,
                      static_cast<std::size_t>(kSliceWarps * Residuals<kRows>::kBytes)},
                     slices_kernel<kRows>, read);
}

}  // namespace

void multiply_slices(const Tiled& read, Queue& queue) {
    if (read.rows == 1) {
        launch_for<1>(read, queue);
    } else if (read.rows <= kBatchMost) {
        launch_for<kBatchMost>(read, queue);
    } else {
        launch_for<kWindow>(read, queue);
    }
}

}  // namespace strata::cuda::tiles
