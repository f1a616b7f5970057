// What chunks of the delta net need of no memory, each for itself: products of queries and keys,
// decays between rows, and the inverse of the triangle by which a row's writes meet later ones.
// Bound by the inverse, a thread a column.
#include "backend/cuda/columns.cuh"
#include "backend/cuda/delta.cuh"
#include "backend/cuda/fours.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/prompt_chunk.cuh"

namespace strata::cuda::prompt {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBlock = 16;  // rows that are solved together
constexpr int kBlocks = kChunk / kBlock;
static_assert(kWarps == kBlocks && kThreads == 2 * kChunk);

// Rows of four more than they hold: neighbouring ones begin in different banks.
constexpr int kSquareStride = kChunk + 4;
using Square = float[kChunk][kSquareStride];

// Its exponential is zero in F32.
constexpr float kLogDecayMin = -128.0f;

// Of one value head. G is held in two parts, as the difference of two long sums matters.
struct Gates {
    float beta[kChunk];
    float high[kChunk];
    float low[kChunk];

    // exp(G_i - G_j)
    __device__ float decay(int i, int j) const {
        return expf((high[i] - high[j]) + (low[i] - low[j]));
    }
    // By the first warp, two rows a lane.
    __device__ void load(const DeltaRows& rows, int head, std::int64_t first, int count) {
        const auto lane = static_cast<int>(threadIdx.x);
        double sums[2] = {};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = 2 * lane + i;
            float4 gates{};
            if (row < count) gates = four_at(rows.gates.row(first + row) + kGates * head);
            beta[row] = gates.y;
            // Lower ones are cut: exp() of them is 0 in F32 either way, and sums stay finite.
            sums[i] = static_cast<double>(gates.w < kLogDecayMin ? kLogDecayMin : gates.w);
        }
        sums[1] += sums[0];
        double before = sums[1];
#pragma unroll
        for (int by = 1; by < kWarp; by *= 2) {
            const double other = __shfl_up_sync(kAllLanes, before, static_cast<unsigned>(by));
            if (lane >= by) before += other;
        }
        before -= sums[1];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const double sum = before + sums[i];
            high[2 * lane + i] = static_cast<float>(sum);
            low[2 * lane + i] = static_cast<float>(sum - static_cast<double>(high[2 * lane + i]));
        }
    }
};

struct Squares {
    Square keys;   // [j][i]: k_i . k_j
    Square share;  // [i][j]: q_i . k_j
    Square solve;  // [j][i]: A; where that is solved [c][i]: columns of the inverse
    Paired<kChunk> solved;
};

template <int kKeyDim>
struct Memory {
    // The units until they are multiplied.
    union {
        KeyChunk<kKeyDim> units;
        Squares squares;
    };
    Gates gates;
};

// Rows of units as pairs, here and in device memory.
template <int kKeyDim>
__device__ void split_units(const DeltaRows& rows, int key_heads, int g, std::int64_t first,
                            int count, KeyChunk<kKeyDim>& here, KeyChunk<kKeyDim>& there) {
    constexpr int kPieces = Paired<kKeyDim>::kPieces;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * kChunk * kPieces; i += kThreads) {
        const int piece = i % kPieces;
        const int row = i / kPieces % kChunk;
        const bool key = i >= kChunk * kPieces;
        float v[8] = {};
        if (row < count) {
            const float* from = rows.units.row(first + row) + g * kKeyDim + 8 * piece +
                                (key ? key_heads * kKeyDim : 0);
            const float4 low = four_at(from);
            const float4 high = four_at(from + 4);
            v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
            v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
        }
        const uint4 parts[2] = {bf16_eight(v), bf16_rests(v)};
        for (int part = 0; part < 2; ++part) {
            const int at = Paired<kKeyDim>::at(row, piece, part);
            *reinterpret_cast<uint4*>((key ? here.k : here.q).bytes + at) = parts[part];
            *reinterpret_cast<uint4*>((key ? there.k : there.q).bytes + at) = parts[part];
        }
    }
}

constexpr int kTiles = kChunk / 8;

// Rows 16 m .. of a times the rows of b, as far as these are not later.
template <int kKeyDim>
__device__ void multiply_lower(const Paired<kKeyDim>& a, const Paired<kKeyDim>& b, int m,
                               float (&sums)[kTiles][4]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int step = 0; step < kKeyDim / 16; ++step) {
        const SplitTile left = load_left(a, m, step, lane);
#pragma unroll
        for (int n = 0; n < kTiles; n += kTogether) {
            if (n > 2 * m + 1) break;
            RightTiles right;
            load_rows(right, b, n, step, lane);
            add_split(sums, n, left, right);
        }
    }
}

// store(i, j, value) of the sums of rows 16 m ..
template <typename Store>
__device__ void store_sums(const float (&sums)[kTiles][4], int m, Store store) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            store(16 * m + lane / 4 + i / 2 * 8, 8 * n + lane % 4 * 2 + i % 2, sums[n][i]);
        }
    }
}

// (q_i . k_j) exp(G_i - G_j) of the rows of block `block`, by the upper half of the threads.
__device__ void share_rows(const Square& share, const Gates& gates, int block, HeadChunk& out) {
    for (int i = static_cast<int>(threadIdx.x) - kChunk; i < kBlock * kChunk / 8; i += kChunk) {
        const int row = block * kBlock + i / 8;
        const int piece = i % 8;
        float v[8] = {};
        for (int j = 0; j < 8 && 8 * piece + j <= row; ++j) {
            v[j] = share[row][8 * piece + j] * gates.decay(row, 8 * piece + j);
        }
        *reinterpret_cast<uint4*>(out.share.piece(row, piece, 0)) = bf16_eight(v);
        *reinterpret_cast<uint4*>(out.share.piece(row, piece, 1)) = bf16_rests(v);
    }
}

// x -= four entries of a row of A times `by`
__device__ inline void take_four(float* x, const float* a, float by) {
    const float4 four = four_at(a);
    x[0] = __fmaf_rn(-four.x, by, x[0]);
    x[1] = __fmaf_rn(-four.y, by, x[1]);
    x[2] = __fmaf_rn(-four.z, by, x[2]);
    x[3] = __fmaf_rn(-four.w, by, x[3]);
}

// Of column c of the inverse the rows of block `block`, from the rows above.
__device__ void solve_rows(const Square& solve, int c, int block, float (&x)[kBlock]) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) x[i] = block * kBlock + i == c ? 1.0f : 0.0f;
    // Above the diagonal the column is zero.
    for (int j = c / kWarp * kWarp; j < block * kBlock; j += 4) {
        const float4 own = four_at(&solve[c][j]);
        const float by[4] = {own.x, own.y, own.z, own.w};
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int i = 0; i < kBlock; i += 4) {
                take_four(x + i, &solve[j + n][block * kBlock + i], by[n]);
            }
        }
    }
    // A is zero on the diagonal and above, where whole fours are taken.
#pragma unroll
    for (int j = 0; j < kBlock - 1; ++j) {
#pragma unroll
        for (int i = j / 4 * 4; i < kBlock; i += 4) {
            take_four(x + i, &solve[block * kBlock + j][block * kBlock + i], x[j]);
        }
    }
}
// The same rows of the inverse times diag(beta) as pairs, and over what they were solved from.
template <int kKeyDim>
__device__ void store_rows(Memory<kKeyDim>& memory, int c, int block, const float (&x)[kBlock]) {
    const float beta = memory.gates.beta[c];
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
        memory.squares.solve[c][block * kBlock + i] = x[i];
        const float value = x[i] * beta;
        const std::uint16_t parts[2] = {bf16_of(value),
                                        bf16_of(value - bfloat_to_float(bf16_of(value)))};
        for (int part = 0; part < 2; ++part) {
            auto* row = memory.squares.solved.piece(block * kBlock + i, c / 8, part);
            reinterpret_cast<std::uint16_t*>(row)[c % 8] = parts[part];
        }
    }
}

template <int kKeyDim>
__device__ void solve_head(Memory<kKeyDim>& memory, const DeltaRows& rows, int head,
                           std::int64_t first, int count, HeadChunk& out) {
    const auto thread = static_cast<int>(threadIdx.x);
    const Gates& gates = memory.gates;
    __syncthreads();
    if (thread < kWarp) memory.gates.load(rows, head, first, count);
    __syncthreads();
    for (int e = thread; e < kChunk * kChunk; e += kThreads) {
        const int j = e / kChunk;
        const int i = e % kChunk;
        memory.squares.solve[j][i] =
            j < i ? gates.beta[i] * memory.squares.keys[j][i] * gates.decay(i, j) : 0.0f;
    }
    if (thread < kChunk) {
        out.gains.before[thread] = expf(gates.high[thread]);
        out.gains.after[thread] = gates.decay(kChunk - 1, thread);
    }
    __syncthreads();
    for (int block = 0; block < kBlocks; ++block) {
        float x[kBlock];
        if (thread < kChunk) {
            solve_rows(memory.squares.solve, thread, block, x);
        } else {
            share_rows(memory.squares.share, gates, block, out);
        }
        __syncthreads();
        if (thread < kChunk) store_rows(memory, thread, block, x);
    }
    __syncthreads();
    const auto* from = reinterpret_cast<const uint4*>(&memory.squares.solved);
    auto* to = reinterpret_cast<uint4*>(&out.solved);
    constexpr int kWords = sizeof(memory.squares.solved) / sizeof(uint4);
    for (int i = thread; i < kWords; i += kThreads) to[i] = from[i];
}

// Blocks (chunks, key heads).
template <int kKeyDim>
__global__ void __launch_bounds__(kThreads)
    solve_chunks(op::DeltaNet args, DeltaRows rows, Chunks<kKeyDim> chunks) {
    if (!kPromptsRun) return;
    auto& memory = *reinterpret_cast<Memory<kKeyDim>*>(shared_bytes());
    const op::DeltaShape& shape = args.shape;
    const auto thread = static_cast<int>(threadIdx.x);
    const int warp = thread / kWarp;
    const std::int64_t chunk = blockIdx.x;
    const auto g = static_cast<int>(blockIdx.y);
    const std::int64_t first = chunk * kChunk;
    const auto count = static_cast<int>(min(std::int64_t{kChunk}, rows.out.rows - first));
    split_units(rows, shape.key_heads, g, first, count, memory.units,
                chunks.keys[chunk * shape.key_heads + g]);
    __syncthreads();
    {
        // Few products for one, many for the other.
        float keys[kTiles][4] = {};
        float share[kTiles][4] = {};
        multiply_lower(memory.units.k, memory.units.k, warp, keys);
        multiply_lower(memory.units.q, memory.units.k, kWarps - 1 - warp, share);
        __syncthreads();
        store_sums(keys, warp,
                   [&](int i, int j, float value) { memory.squares.keys[j][i] = value; });
        store_sums(share, kWarps - 1 - warp,
                   [&](int i, int j, float value) { memory.squares.share[i][j] = value; });
    }
    const int heads = shape.value_heads / shape.key_heads;
    for (int n = 0; n < heads; ++n) {
        const int h = args.order == op::HeadOrder::tiled ? g + n * shape.key_heads : g * heads + n;
        solve_head(memory, rows, h, first, count, chunks.heads[chunk * shape.value_heads + h]);
    }
}

template <int kKeyDim>
void start(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows,
           const Chunks<kKeyDim>& chunks) {
    static_assert(sizeof(Memory<kKeyDim>) <= kSharedBytesEverywhere);
    launch(queue,
           {dim3(static_cast<unsigned>(chunks_of(rows.out.rows)),
                 static_cast<unsigned>(args.shape.key_heads)),
            kThreads, sizeof(Memory<kKeyDim>)},
           solve_chunks<kKeyDim>, args, rows, chunks);
}

}  // namespace

void solve_delta(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows,
                 const Chunks<128>& chunks) {
    start(queue, args, rows, chunks);
}
void solve_delta(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows,
                 const Chunks<64>& chunks) {
    start(queue, args, rows, chunks);
}
void solve_delta(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows,
                 const Chunks<32>& chunks) {
    start(queue, args, rows, chunks);
}

}  // namespace strata::cuda::prompt
