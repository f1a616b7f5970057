// The first launch of stream_read_tiles.cuh.
#include "backend/cuda/operand.cuh"
#include "backend/cuda/stream_read_tiles.cuh"

namespace strata::cuda::tiles {
namespace {

constexpr int kSliceThreads = kSliceWarps * kWarp;

// R * norm of one row of x from `column` of stream s on; adds the squares of R.
struct Residual {
    const Tiled& read;
    int t;
    int s;
    float inject;

    __device__ Residual(const Tiled& read_, int t_, int s_)
        : read(read_), t(t_), s(s_), inject(0.0f) {
        if (read.block_out != nullptr) inject = read.block_inject[t * read.streams + s];
    }
    __device__ void eight(int column, float (&values)[kEight], float& squares) const {
        const int at = s * read.width + column;
        float gain[kEight];
        float out[kEight] = {};
        load_eight(read.residual + t * read.all_columns() + at, values);
        load_eight(read.norm + at, gain);
        if (read.block_out != nullptr) load_eight(read.block_out + t * read.width + column, out);
#pragma unroll
        for (int i = 0; i < kEight; ++i) {
            if (read.block_out != nullptr) values[i] = values[i] + inject * out[i];
            squares = __fmaf_rn(values[i], values[i], squares);
            values[i] *= gain[i];
        }
    }
};

// The lane's eights of weight rows g and g + 8 of a tile; zeros where there are none.
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
        const bool is_down = row < read.low;
        const std::byte* from = is_down ? read.down : read.inject_weight;
        const int own = is_down ? row : row - read.low;
        from += (std::int64_t{own} * read.all_columns() + s * read.width) * 2;
#pragma unroll
        for (int j = 0; j < kSliceSpans; ++j) {
            const int c = column + j * kSpan;
            const bool there = row < read.products && c < read.width;
            to[j] = there ? load_sixteen(from + c * 2) : uint4{0, 0, 0, 0};
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

// partial = down and inject_weight . (R * norm), of one slice: block (tile of weight rows, slice,
// window).
__global__ void __launch_bounds__(kSliceThreads, 2)
    slices_kernel(const __grid_constant__ Tiled read) {
    __shared__ float sums[kSliceWarps][kTileRows * kWindow];
    __shared__ float squares[kSliceWarps][kWindow];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const auto slice = static_cast<int>(blockIdx.y);
    const int s = slice / read.slices;
    const int first_row = static_cast<int>(blockIdx.x) * kTileRows;
    const int column = slice % read.slices * kSliceColumns + warp * (kSliceSpans * kSpan) +
                       eight_of_lane() * kEight;
    SliceWeights weights;
    weights.load(read, first_row, s, column);
    follow_earlier_kernels();
    const int first = static_cast<int>(blockIdx.z) * kWindow;
    const int t = first + row_of_lane();
    const bool own_row = t < read.rows;
    const Residual residual(read, own_row ? t : first, s);
    TileSums tile;
    float own_squares = 0.0f;
#pragma unroll
    for (int j = 0; j < kSliceSpans; ++j) {
        const int c = column + j * kSpan;
        Split x;
        if (own_row && c < read.width) {
            float values[kEight];
            residual.eight(c, values, own_squares);
            x.set(values);
        }
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
            tile.add(weights.upper[j], weights.lower[j], p, x.part[p][0], x.part[p][1],
                     x.part[p][2], x.part[p][3]);
        }
    }
    tile.store(sums[warp]);
    const bool leads = blockIdx.x == 0;  // notes the squares
    if (leads) {
        own_squares += __shfl_xor_sync(kAllLanes, own_squares, 1);
        own_squares += __shfl_xor_sync(kAllLanes, own_squares, 2);
        if (eight_of_lane() == 0) squares[warp][row_of_lane()] = own_squares;
        if (own_row && eight_of_lane() == 0 && warp == 0 && slice % read.slices == 0) {
            read.inject_from[t * read.streams + s] = residual.inject;
        }
    }
    __syncthreads();
    store_slice(read, first, slice, sums, leads ? squares : nullptr);
}

}  // namespace

void multiply_slices(const Tiled& read, Queue& queue) {
    const auto tiles = static_cast<unsigned>((read.products + kTileRows - 1) / kTileRows);
    const auto slices = static_cast<unsigned>(read.streams * read.slices);
    launch_dependent(queue, {dim3(tiles, slices, windows_of(read)), kSliceThreads}, slices_kernel,
                     read);
}

}  // namespace strata::cuda::tiles
