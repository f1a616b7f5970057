// Bounded by its own latency: warps share the parts of 256 columns of a row, and one writes them as
// the product that follows reads them.
#include "backend/cuda/dflash_attend.cuh"
#include "backend/cuda/draft_rows.cuh"
#include "backend/cuda/launch.cuh"

namespace strata::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kColumns = kWarp * kPiece;

// What a warp has of its columns. A lane has eight neighbours, of which kAlike lie in one head.
template <int kAlike>
struct Columns {
    static constexpr int kHeads = kPiece / kAlike;
    Softmax<kAlike> head[kHeads];

    // `column` is the lane's first, of `cols`.
    __device__ void add_part(const Attend& attend, int row, int column, int cols, int part) {
        const int d = attend.shape.head_dim;
#pragma unroll
        for (int k = 0; k < kHeads; ++k) {
            const int own = column + k * kAlike;
            if (own >= cols) break;
            const int h = own / d;
            const std::int64_t at =
                attend.at(h / attend.group, part, row * attend.group + h % attend.group);
            float values[kAlike];
            if constexpr (kAlike == kPiece) {
                load_eight(attend.values + at * d + own % d, values);
            } else {
                values[0] = attend.values[at * d + own % d];
                static_assert(kAlike == 1);
            }
            head[k].add(attend.largest[at], attend.sum[at], values);
        }
    }
    __device__ void add(const Columns& other) {
#pragma unroll
        for (int k = 0; k < kHeads; ++k) {
            head[k].add(other.head[k].largest, other.head[k].sum, other.head[k].values);
        }
    }
    __device__ void get(float (&to)[kPiece]) const {
#pragma unroll
        for (int i = 0; i < kPiece; ++i) {
            to[i] = head[i / kAlike].values[i % kAlike] / head[i / kAlike].sum;
        }
    }
};

// Block (columns, row).
template <int kAlike>
__global__ void __launch_bounds__(kThreads) join_parts(Attend attend, DraftRows to) {
    attend.look_up();
    const int parts = attend.parts_used();
    follow_earlier_kernels();
    constexpr int kFloats = sizeof(Columns<kAlike>) / sizeof(float);
    __shared__ float given[kWarps - 1][kWarp][kFloats];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const auto row = static_cast<int>(blockIdx.y);
    const int column = static_cast<int>(blockIdx.x) * kColumns + lane * kPiece;
    Columns<kAlike> own;
#pragma unroll 2
    for (int part = warp; part < parts; part += kWarps) {
        own.add_part(attend, row, column, to.cols, part);
    }
    const auto place = [&](int w) {
        return reinterpret_cast<Columns<kAlike>*>(given[w - 1][lane]);
    };
    if (warp > 0) *place(warp) = own;
    __syncthreads();
    if (warp > 0) return;
#pragma unroll
    for (int w = 1; w < kWarps; ++w) own.add(*place(w));
    float values[kPiece] = {};
    if (column < to.cols) own.get(values);
    store_eight(to, row, column, values);
}

}  // namespace

void dflash_join(Queue& queue, const Attend& attend, const DraftRows& to) {
    const dim3 blocks(static_cast<unsigned>((to.cols + kColumns - 1) / kColumns),
                      static_cast<unsigned>(to.rows));
    if (attend.shape.head_dim % kPiece == 0) {
        launch_dependent(queue, {blocks, kThreads}, join_parts<kPiece>, attend, to);
    } else {
        launch_dependent(queue, {blocks, kThreads}, join_parts<1>, attend, to);
    }
}

}  // namespace strata::cuda
