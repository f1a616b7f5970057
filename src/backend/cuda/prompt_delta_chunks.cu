// The chunked form: what needs no memory is made for all chunks at once (prompt_delta_solve.cu);
// then a warp takes sixteen columns of a head's memory through the chunks, turned and in registers.
// Sums of products have there the layout of left sides of the next, so the chain of products of a
// chunk has no value of it in shared memory. Per chunk, with the matrices of prompt_chunk.cuh:
//   R = V - diag(before) K M;   D = solved R;   O = diag(before) Q M + share D
//   M <- exp(G_last) M + K^T diag(after) D
// Bound by the products, on as many multiprocessors as there are 64 columns of heads, a warp at
// each tensor core.
#include "backend/cuda/delta.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/prompt_chunk.cuh"
#include "base/check.h"

namespace strata::cuda::prompt {
namespace {

constexpr int kThreads = 128;
constexpr int kWarpColumns = 16;
constexpr int kColumns = kThreads / kWarp * kWarpColumns;  // of a block
constexpr int kTiles = kChunk / 8;                         // of sixteen columns and a chunk's rows

template <int kKeyDim>
struct Memory {
    KeyChunk<kKeyDim> keys;
    HeadChunk head;
};

template <typename T>
__device__ void bring(T& to, const T& from) {
    static_assert(sizeof(T) % sizeof(uint4) == 0);
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(T) / sizeof(uint4));
         i += kThreads) {
        copy_async(reinterpret_cast<uint4*>(&to) + i, reinterpret_cast<const uint4*>(&from) + i,
                   true);
    }
}

// use(n, right) for the groups 0 .. kGroups - 1 of tiles that load(n, right) brings, each asked for
// before the one before it is used.
template <int kGroups, typename Load, typename Use>
__device__ void each_group(Load load, Use use) {
    RightTiles right[2];
    load(0, right[0]);
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
        if (n + 1 < kGroups) load(n + 1, right[(n + 1) % 2]);
        use(n, right[n % 2]);
    }
}

// Sixteen columns of the memory of a head, turned: tile n has rows 8 n .. of it.
template <int kKeyDim>
struct TurnedColumns {
    static constexpr int kSteps = kKeyDim / 16;
    float memory[kKeyDim / 8][4];

    // Columns of a memory whose rows are `stride` apart, from the lane's first entry on.
    __device__ void load(const float* from, int stride, bool there) {
#pragma unroll
        for (int n = 0; n < kKeyDim / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int at = (8 * n + i % 2) * stride + i / 2 * 8;
                memory[n][i] = there ? from[at] : 0.0f;
            }
        }
    }
    __device__ void store(float* to, int stride) const {
#pragma unroll
        for (int n = 0; n < kKeyDim / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                to[(8 * n + i % 2) * stride + i / 2 * 8] = memory[n][i];
            }
        }
    }
    // sums = (rows M)^T, each of the rows
    __device__ void read(const Paired<kKeyDim>& rows, int lane, float (&sums)[kTiles][4]) const {
        constexpr int kHalves = kTiles / kTogether;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0.0f;
        SplitTile left{};
        each_group<kSteps * kHalves>(
            [&](int n, RightTiles& to) {
                load_rows(to, rows, n % kHalves * kTogether, n / kHalves, lane);
            },
            [&](int n, const RightTiles& right) {
                const int step = n / kHalves;
                if (n % kHalves == 0) left = split_tile(memory[2 * step], memory[2 * step + 1]);
                add_split(sums, n % kHalves * kTogether, left, right);
            });
    }
    // M <- by M + K^T D
    __device__ void write(const Paired<kKeyDim>& keys, float by, const float (&d)[kTiles][4],
                          int lane) {
        constexpr int kGroups = kKeyDim / 8 / kTogether;
#pragma unroll
        for (int n = 0; n < kKeyDim / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) memory[n][i] *= by;
        }
        SplitTile left{};
        each_group<kChunk / 16 * kGroups>(
            [&](int n, RightTiles& to) {
                load_columns(to, keys, n % kGroups * kTogether, n / kGroups, lane);
            },
            [&](int n, const RightTiles& right) {
                const int step = n / kGroups;
                if (n % kGroups == 0) left = split_tile(d[2 * step], d[2 * step + 1]);
                add_split(memory, n % kGroups * kTogether, left, right);
            });
    }
};

// sums += (triangle x)^T, x turned. Of later columns of a triangle the upper rows are zero.
__device__ void add_triangle(const Paired<kChunk>& triangle, const float (&x)[kTiles][4], int lane,
                             float (&sums)[kTiles][4]) {
    constexpr int kWhole = 4;  // groups of the steps whose rows are all there
    const auto step = [](int n) { return n < kWhole ? n / 2 : n - kWhole / 2; };
    const auto first = [](int n) { return n < kWhole ? n % 2 * kTogether : kTogether; };
    SplitTile left{};
    each_group<kWhole + 2>(
        [&](int n, RightTiles& to) { load_rows(to, triangle, first(n), step(n), lane); },
        [&](int n, const RightTiles& right) {
            if (n == 0 || step(n) != step(n - 1))
                left = split_tile(x[2 * step(n)], x[2 * step(n) + 1]);
            add_split(sums, first(n), left, right);
        });
}

// Of tile n of turned rows a lane has rows 8 n + row_of(lane), and the next, of columns
// lane / 4 and 8 more.
__device__ inline int row_of(int n, int lane) { return 8 * n + lane % 4 * 2; }

// sums of each row times its gain
__device__ void scale(float (&sums)[kTiles][4], const float (&gains)[kChunk], int lane) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
        const float2 by = *reinterpret_cast<const float2*>(gains + row_of(n, lane));
        sums[n][0] *= by.x, sums[n][1] *= by.y;
        sums[n][2] *= by.x, sums[n][3] *= by.y;
    }
}

// use(tile, i, address) for what a lane has of the first `count` of rows that are `stride` apart;
// `at` is its first column of the first.
template <typename T, typename Use>
__device__ void each_entry(T* at, int stride, int count, int lane, Use use) {
    at += row_of(0, lane) * stride;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (row_of(n, lane) + i >= count) continue;
            use(n, i, at + i * stride);
            use(n, i + 2, at + i * stride + 8);
        }
        at += 8 * stride;
    }
}

// What a block has of the chunks, brought by all of its threads.
template <int kKeyDim>
class Stage {
  public:
    __device__ Stage(const op::DeltaNet& args, const Chunks<kKeyDim>& chunks, int head)
        : keys_(chunks.keys + delta_key_head(args.shape, args.order, head)),
          heads_(chunks.heads + head),
          key_heads_(args.shape.key_heads),
          value_heads_(args.shape.value_heads) {}

    __device__ Memory<kKeyDim>& here() const {
        return *reinterpret_cast<Memory<kKeyDim>*>(shared_bytes());
    }
    __device__ void bring_queries(std::int64_t chunk) const {
        bring(here().keys.q, keys_[chunk * key_heads_].q);
        commit_copies();
    }
    __device__ void bring_triangles(std::int64_t chunk) const {
        bring(here().head.solved, heads_[chunk * value_heads_].solved);
        bring(here().head.share, heads_[chunk * value_heads_].share);
        commit_copies();
    }
    __device__ void bring_keys(std::int64_t chunk) const {
        bring(here().keys.k, keys_[chunk * key_heads_].k);
        bring(here().head.gains, heads_[chunk * value_heads_].gains);
        commit_copies();
    }

  private:
    const KeyChunk<kKeyDim>* keys_;
    const HeadChunk* heads_;
    int key_heads_;
    int value_heads_;
};

// The rows of a chunk, from a lane's first column on. `next` is the chunk to bring in its place.
template <int kKeyDim>
__device__ void pass_chunk(const Stage<kKeyDim>& stage, std::int64_t next, const DeltaRows& rows,
                           const float* values, float* reads, int count, bool there, int lane,
                           TurnedColumns<kKeyDim>& turned) {
    const Memory<kKeyDim>& chunk = stage.here();
    float v[kTiles][4] = {};
    each_entry(values, static_cast<int>(rows.value_stride), count, lane,
               [&](int n, int i, const float* at) { v[n][i] = *at; });
    float out[kTiles][4];
    float sums[kTiles][4];
    wait_copies<2>();
    __syncthreads();
    turned.read(chunk.keys.q, lane, out);
    wait_copies<0>();
    __syncthreads();
    stage.bring_queries(next);
    turned.read(chunk.keys.k, lane, sums);
    scale(out, chunk.head.gains.before, lane);
    scale(sums, chunk.head.gains.before, lane);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) v[n][i] -= sums[n][i], sums[n][i] = 0.0f;
    }
    add_triangle(chunk.head.solved, v, lane, sums);
    add_triangle(chunk.head.share, sums, lane, out);
    __syncthreads();
    stage.bring_triangles(next);
    each_entry(reads, static_cast<int>(rows.out.cols), there ? count : 0, lane,
               [&](int n, int i, float* at) { *at = out[n][i]; });
    scale(sums, chunk.head.gains.after, lane);
    turned.write(chunk.keys.k, chunk.head.gains.before[kChunk - 1], sums, lane);
    __syncthreads();
    stage.bring_keys(next);
}

// Blocks (columns, heads).
template <int kKeyDim>
__global__ void __launch_bounds__(kThreads)
    pass_chunks(op::DeltaNet args, DeltaRows rows, Chunks<kKeyDim> chunks) {
    if (!kPromptsRun) return;
    const auto thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kWarp;
    const auto head = static_cast<int>(blockIdx.y);
    const int dv = args.shape.value_dim;
    // Where there are no more columns a warp helps with copies, at values that others have.
    const int own = static_cast<int>(blockIdx.x) * kColumns + thread / kWarp * kWarpColumns;
    const bool there = own < dv;
    const int column = (there ? own : 0) + lane / 4;
    const std::int64_t state = (std::int64_t{head} * kKeyDim + row_of(0, lane)) * dv + column;
    TurnedColumns<kKeyDim> turned;
    turned.load(args.from.memory + state, dv, there);
    const Stage<kKeyDim> stage(args, chunks, head);
    stage.bring_queries(0);
    stage.bring_triangles(0);
    stage.bring_keys(0);
    const std::int64_t all = chunks_of(rows.out.rows);
    const std::int64_t first = std::int64_t{head} * dv + column;
    for (std::int64_t chunk = 0; chunk < all; ++chunk) {
        const std::int64_t row = chunk * kChunk;
        const auto count = static_cast<int>(min(std::int64_t{kChunk}, rows.out.rows - row));
        // The last chunk is brought again where there is no next.
        pass_chunk(stage, min(chunk + 1, all - 1), rows,
                   rows.values.data + row * rows.value_stride + first, rows.out.row(row) + first,
                   count, there, lane, turned);
    }
    wait_copies<0>();
    if (there) turned.store(args.to.memory + state, dv);
}

template <int kKeyDim>
void start(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows) {
    static_assert(sizeof(Memory<kKeyDim>) <= kSharedBytesEverywhere);
    const op::DeltaShape& shape = args.shape;
    const std::int64_t all = chunks_of(rows.out.rows);
    const Chunks<kKeyDim> chunks{queue.take<KeyChunk<kKeyDim>>(all * shape.key_heads),
                                 queue.take<HeadChunk>(all * shape.value_heads)};
    solve_delta(queue, args, rows, chunks);
    launch(queue,
           {dim3(static_cast<unsigned>((shape.value_dim + kColumns - 1) / kColumns),
                 static_cast<unsigned>(shape.value_heads)),
            kThreads, sizeof(Memory<kKeyDim>)},
           pass_chunks<kKeyDim>, args, rows, chunks);
}

}  // namespace

void run_delta_chunks(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows) {
    STRATA_CHECK(runs_delta(args.shape));
    if (args.shape.key_dim == 128) return start<128>(queue, args, rows);
    if (args.shape.key_dim == 64) return start<64>(queue, args, rows);
    start<32>(queue, args, rows);
}

}  // namespace strata::cuda::prompt
