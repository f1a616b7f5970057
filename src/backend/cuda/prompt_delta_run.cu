// The recurrence, row after row, so that where a prompt was cut changes no bit. Columns of a memory
// never meet, so a warp takes four of a head's through all rows in its registers: 1,536 warps at
// 48 heads of 128. Bound by instructions, 4 an entry of the memory and row: a lane has two columns,
// so that what it loads of a key and a query serves both. What a step reads is brought to shared
// memory some rows ahead, and from there to registers one row ahead.
//
// d = beta (v - alpha M^T k);  M <- alpha M + k d^T;  o = alpha M^T q + (q . k) d, the last from
// the memory before, so that both reads of it are one pass and their sums travel together.
#include "backend/cuda/delta.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/prompt_delta.h"
#include "backend/cuda/tensor_core.cuh"
#include "base/check.h"

namespace strata::cuda::prompt {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRows = 16;  // brought at a time

// How the lanes of a warp share columns of a memory: kParts lanes have two of them, each
// 4 kFours entries.
template <int kKeyDim>
struct Split {
    static constexpr int kParts = kKeyDim >= 64 ? 16 : 8;
    static constexpr int kFours = kKeyDim / (4 * kParts);
    static constexpr int kWarpColumns = 2 * kWarp / kParts;
    static constexpr int kColumns = kWarps * kWarpColumns;  // of a block
};

// What kRows rows bring to a block.
template <int kKeyDim>
struct Stage {
    float q[kRows][kKeyDim];
    float k[kRows][kKeyDim];
    float v[kRows][Split<kKeyDim>::kColumns];
    float4 gates[kRows];
};

struct Where {
    int head;
    int key;
    int column;  // the block's first
};

template <int kKeyDim>
__device__ void bring(Stage<kKeyDim>& stage, const DeltaRows& rows, const Where& at, int key_heads,
                      std::int64_t first) {
    const auto count = static_cast<int>(min(std::int64_t{kRows}, rows.out.rows - first));
    const auto thread = static_cast<int>(threadIdx.x);
    constexpr int kPieces = kKeyDim / 4;
    constexpr int kValues = Split<kKeyDim>::kColumns / 4;
    // Rows that are not there give zeros, and no address of theirs is read.
    {
        const int piece = thread % kPieces * 4;
        const float* from = rows.units.row(first) + at.key * kKeyDim + piece;
        const auto stride = static_cast<int>(rows.units.cols);
#pragma unroll
        for (int i = 0; i < kRows * kPieces / kThreads; ++i) {
            const int row = thread / kPieces + i * (kThreads / kPieces);
            copy_async(&stage.q[row][piece], from + row * stride, row < count);
            copy_async(&stage.k[row][piece], from + row * stride + key_heads * kKeyDim,
                       row < count);
        }
    }
    static_assert(kRows * kPieces % kThreads == 0 && kRows * kValues <= kThreads);
    if (thread < kRows * kValues) {
        const int row = thread / kValues;
        const int piece = thread % kValues * 4;
        const float* from = rows.values.data + (first + row) * rows.value_stride;
        copy_async(&stage.v[row][piece], from + at.column + piece, row < count);
    }
    if (thread < kRows) {
        copy_async(&stage.gates[thread], rows.gates.row(first + thread) + kGates * at.head,
                   thread < count);
    }
    commit_copies();
}

// What a step reads. Of v the column that the lane gets the sums of.
template <int kKeyDim>
struct Inputs {
    static constexpr int kFours = Split<kKeyDim>::kFours;
    float k[kFours][4];
    float q[kFours][4];
    float v;
    float4 gates;

    __device__ void load(const Stage<kKeyDim>& stage, int row, int part, int column) {
        fill(stage.k[row], part, k);
        fill(stage.q[row], part, q);
        v = stage.v[row][column];
        gates = stage.gates[row];
    }
    __device__ static void fill(const float* row, int part, float (&to)[kFours][4]) {
#pragma unroll
        for (int n = 0; n < kFours; ++n) {
            const float4 four =
                *reinterpret_cast<const float4*>(row + 4 * part + 4 * Split<kKeyDim>::kParts * n);
            to[n][0] = four.x, to[n][1] = four.y, to[n][2] = four.z, to[n][3] = four.w;
        }
    }
};

// The lane's entries of two columns: rows 4 part + 4 kParts n + i of the memory.
template <int kKeyDim>
struct Columns {
    static constexpr int kFours = Split<kKeyDim>::kFours;
    static constexpr int kParts = Split<kKeyDim>::kParts;
    float memory[2][kFours][4];

    __device__ static float dot(const float (&a)[kFours][4], const float (&b)[kFours][4]) {
        float sums[kFours];
#pragma unroll
        for (int n = 0; n < kFours; ++n) {
            sums[n] = a[n][0] * b[n][0];
#pragma unroll
            for (int i = 1; i < 4; ++i) sums[n] = __fmaf_rn(a[n][i], b[n][i], sums[n]);
        }
        float sum = sums[0];
#pragma unroll
        for (int n = 1; n < kFours; ++n) sum += sums[n];
        return sum;
    }
    // Sums over the lanes of the two columns: the upper half of the lanes gets those of the second
    // column, and of each half the lower quarter that of k, the upper one that of q.
    __device__ float sums(const Inputs<kKeyDim>& in, bool second, bool of_q) const {
        float seen[2];
        float read[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            seen[c] = dot(in.k, memory[c]);
            read[c] = dot(in.q, memory[c]);
        }
        const float own_seen = (second ? seen[1] : seen[0]) +
                               __shfl_xor_sync(kAllLanes, second ? seen[0] : seen[1], kParts / 2);
        const float own_read = (second ? read[1] : read[0]) +
                               __shfl_xor_sync(kAllLanes, second ? read[0] : read[1], kParts / 2);
        float sum = (of_q ? own_read : own_seen) +
                    __shfl_xor_sync(kAllLanes, of_q ? own_seen : own_read, kParts / 4);
#pragma unroll
        for (int by = kParts / 8; by > 0; by /= 2) sum += __shfl_xor_sync(kAllLanes, sum, by);
        return sum;
    }
    // Returns o, in the lanes that have the sums of q.
    __device__ float step(const Inputs<kKeyDim>& in, int lane) {
        const int part = lane % kParts;
        const bool second = part >= kParts / 2;
        const float alpha = in.gates.x;
        const float sum = sums(in, second, part % (kParts / 2) >= kParts / 4);
        const float own = in.gates.y * (in.v - alpha * sum);
        const int first = lane / kParts * kParts;
        const float d[2] = {__shfl_sync(kAllLanes, own, first),
                            __shfl_sync(kAllLanes, own, first + kParts / 2)};
#pragma unroll
        for (int c = 0; c < 2; ++c) {
#pragma unroll
            for (int n = 0; n < kFours; ++n) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    memory[c][n][i] = __fmaf_rn(in.k[n][i], d[c], alpha * memory[c][n][i]);
                }
            }
        }
        return __fmaf_rn(in.gates.z, second ? d[1] : d[0], alpha * sum);
    }
};

template <int kKeyDim>
__global__ void __launch_bounds__(kThreads) run_heads(op::DeltaNet args, DeltaRows rows) {
    using Own = Split<kKeyDim>;
    auto* stages = reinterpret_cast<Stage<kKeyDim>*>(shared_bytes());
    const op::DeltaShape& shape = args.shape;
    const auto lane = static_cast<int>(threadIdx.x) % kWarp;
    const int part = lane % Own::kParts;
    // The first of the lane's two, and the one whose sums it gets.
    const int pair =
        static_cast<int>(threadIdx.x) / kWarp * Own::kWarpColumns + lane / Own::kParts * 2;
    const int column = pair + part / (Own::kParts / 2);
    Where at;
    at.head = static_cast<int>(blockIdx.y);
    at.key = delta_key_head(shape, args.order, at.head);
    const int block = static_cast<int>(blockIdx.x) * Own::kColumns;
    at.column = at.head * shape.value_dim + block;
    const std::int64_t state = std::int64_t{at.head} * kKeyDim * shape.value_dim + block + pair;
    const auto entry = [&](int n, int i) {
        return state + (4 * part + 4 * Own::kParts * n + i) * std::int64_t{shape.value_dim};
    };
    Columns<kKeyDim> own;
    for (int n = 0; n < Own::kFours; ++n) {
        for (int i = 0; i < 4; ++i) {
            for (int c = 0; c < 2; ++c) own.memory[c][n][i] = args.from.memory[entry(n, i) + c];
        }
    }
    const bool stores = part % (Own::kParts / 2) == Own::kParts / 4;
    bring(stages[0], rows, at, shape.key_heads, 0);
    for (std::int64_t first = 0; first < rows.out.rows; first += kRows) {
        const Stage<kKeyDim>& stage = stages[first / kRows % 2];
        // The other stage was left before the barrier that ended the last round.
        bring(stages[(first / kRows + 1) % 2], rows, at, shape.key_heads, first + kRows);
        wait_copies<1>();
        __syncthreads();
        Inputs<kKeyDim> next;
        next.load(stage, 0, part, column);
        float* out = rows.out.row(first) + at.column + column;
        const auto step = [&](int row) {
            const Inputs<kKeyDim> in = next;
            next.load(stage, (row + 1) % kRows, part, column);
            const float o = own.step(in, lane);
            if (stores) out[row * static_cast<int>(rows.out.cols)] = o;
        };
        if (rows.out.rows - first >= kRows) {
#pragma unroll 4
            for (int row = 0; row < kRows; ++row) step(row);
        } else {
            const auto count = static_cast<int>(rows.out.rows - first);
            for (int row = 0; row < count; ++row) step(row);
        }
        __syncthreads();
    }
    for (int n = 0; n < Own::kFours; ++n) {
        for (int i = 0; i < 4; ++i) {
            for (int c = 0; c < 2; ++c) args.to.memory[entry(n, i) + c] = own.memory[c][n][i];
        }
    }
}

template <int kKeyDim>
void start(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows) {
    static_assert(2 * sizeof(Stage<kKeyDim>) <= kSharedBytesEverywhere);
    const op::DeltaShape& shape = args.shape;
    launch(queue,
           {dim3(static_cast<unsigned>(shape.value_dim / Split<kKeyDim>::kColumns),
                 static_cast<unsigned>(shape.value_heads)),
            kThreads, 2 * sizeof(Stage<kKeyDim>)},
           run_heads<kKeyDim>, args, rows);
}

}  // namespace

bool runs_delta(const op::DeltaShape& shape) {
    return (shape.key_dim == 128 || shape.key_dim == 64 || shape.key_dim == 32) &&
           shape.value_dim % Split<32>::kColumns == 0;
}

void run_delta(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows) {
    STRATA_CHECK(runs_delta(args.shape));
    if (args.shape.key_dim == 128) return start<128>(queue, args, rows);
    if (args.shape.key_dim == 64) return start<64>(queue, args, rows);
    start<32>(queue, args, rows);
}

}  // namespace strata::cuda::prompt
