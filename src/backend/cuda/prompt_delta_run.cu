// The recurrence, row after row, so that where a prompt was cut changes no bit. Columns of a memory
// never meet, so a warp takes eight of a head's through all rows in its registers: 768 warps at 48
// heads of 128. Bound by instructions, 4 an entry of the memory and row, and by what they read of
// shared memory: a lane has four columns, so that what it loads of a key and a query serves all of
// them. What a step reads is brought to shared memory some rows ahead, and from there to registers
// one row ahead.
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

constexpr int kRows = 16;     // brought at a time
constexpr int kUnrolled = 4;  // steps of them without a branch

constexpr int kOwn = 4;  // columns of a memory that a lane has entries of

// Lanes that share columns, and the fours of entries of a column that each has.
template <int kKeyDim>
struct Split {
    static constexpr int kParts = kKeyDim >= 64 ? 16 : 8;
    static constexpr int kFours = kKeyDim / (4 * kParts);
    static constexpr int kColumns = 32;  // of a block
    static constexpr int kThreads = kColumns / kOwn * kParts;
};

// What kRows rows bring to a block. The row after them is read too, for nothing.
template <int kKeyDim>
struct Stage {
    float q[kRows][kKeyDim];
    float k[kRows][kKeyDim];
    float v[kRows][Split<kKeyDim>::kColumns];
    float4 gates[kRows + 1];
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
    constexpr int kThreads = Split<kKeyDim>::kThreads;
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
    static_assert(kRows * kPieces % kThreads == 0 && kRows * kValues % kThreads == 0);
#pragma unroll
    for (int i = 0; i < kRows * kValues / kThreads; ++i) {
        const int row = thread / kValues + i * (kThreads / kValues);
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

// The lane's entries of four columns: rows 4 part + 4 kParts n + i of the memory.
template <int kKeyDim>
struct Columns {
    static constexpr int kFours = Split<kKeyDim>::kFours;
    static constexpr int kParts = Split<kKeyDim>::kParts;
    float memory[kOwn][kFours][4];

    // Which of the four a lane gets the sums of, and whether that of q: else that of k.
    __device__ static int column_of(int part) {
        return part / (kParts / 2) * 2 + part / (kParts / 4) % 2;
    }
    __device__ static bool is_of_q(int part) { return part / (kParts / 8) % 2 != 0; }
    // The first of the lanes of a column with its sum of k.
    __device__ static int part_of(int column) {
        return column / 2 * (kParts / 2) + column % 2 * (kParts / 4);
    }

    __device__ static float dot(const float (&a)[kFours][4], const float (&b)[kFours][4]) {
        float sum = a[0][0] * b[0][0];
#pragma unroll
        for (int n = 0; n < kFours; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (n > 0 || i > 0) sum = __fmaf_rn(a[n][i], b[n][i], sum);
            }
        }
        return sum;
    }
    // What the lane `by` away has of `other` is added to `own`.
    __device__ static float exchange(bool upper, float low, float high, int by) {
        return (upper ? high : low) + __shfl_xor_sync(kAllLanes, upper ? low : high, by);
    }
    __device__ float sum(const Inputs<kKeyDim>& in, int part) const {
        const bool later_two = part >= kParts / 2;
        const bool later = part % (kParts / 2) >= kParts / 4;
        float seen[kOwn];
        float read[kOwn];
#pragma unroll
        for (int c = 0; c < kOwn; ++c) {
            seen[c] = dot(in.k, memory[c]);
            read[c] = dot(in.q, memory[c]);
        }
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            seen[c] = exchange(later_two, seen[c], seen[c + 2], kParts / 2);
            read[c] = exchange(later_two, read[c], read[c + 2], kParts / 2);
        }
        const float own_seen = exchange(later, seen[0], seen[1], kParts / 4);
        const float own_read = exchange(later, read[0], read[1], kParts / 4);
        float sum = exchange(is_of_q(part), own_seen, own_read, kParts / 8);
#pragma unroll
        for (int by = kParts / 16; by > 0; by /= 2) sum += __shfl_xor_sync(kAllLanes, sum, by);
        return sum;
    }
    // Returns o, in the lanes that have the sum of q.
    __device__ float step(const Inputs<kKeyDim>& in, int lane) {
        const int part = lane % kParts;
        const float alpha = in.gates.x;
        const float seen = alpha * sum(in, part);
        const float own = in.gates.y * (in.v - seen);
        float d[kOwn];
#pragma unroll
        for (int c = 0; c < kOwn; ++c) {
            d[c] = __shfl_sync(kAllLanes, own, lane - part + part_of(c));
        }
        // That of the lane's column, which is `own` where the sum is that of k.
        const float change = __shfl_sync(kAllLanes, own, lane & ~(kParts / 8));
#pragma unroll
        for (int c = 0; c < kOwn; ++c) {
#pragma unroll
            for (int n = 0; n < kFours; ++n) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    memory[c][n][i] = __fmaf_rn(in.k[n][i], d[c], alpha * memory[c][n][i]);
                }
            }
        }
        return __fmaf_rn(in.gates.z, change, seen);
    }
};

template <int kKeyDim>
__global__ void __launch_bounds__(Split<kKeyDim>::kThreads)
    run_heads(op::DeltaNet args, DeltaRows rows) {
    constexpr int kFours = Split<kKeyDim>::kFours;
    auto* stages = reinterpret_cast<Stage<kKeyDim>*>(shared_bytes());
    const op::DeltaShape& shape = args.shape;
    const auto lane = static_cast<int>(threadIdx.x) % kWarp;
    using Own = Split<kKeyDim>;
    const int part = lane % Own::kParts;
    // The first of the lane's four, and the one whose sums it gets.
    const int four = static_cast<int>(threadIdx.x) / Own::kParts * kOwn;
    const int column = four + Columns<kKeyDim>::column_of(part);
    Where at;
    at.head = static_cast<int>(blockIdx.y);
    at.key = delta_key_head(shape, args.order, at.head);
    const int block = static_cast<int>(blockIdx.x) * Own::kColumns;
    at.column = at.head * shape.value_dim + block;
    const std::int64_t state = std::int64_t{at.head} * kKeyDim * shape.value_dim + block + four;
    const auto entry = [&](int n, int i) {
        return state + (4 * part + 4 * Own::kParts * n + i) * std::int64_t{shape.value_dim};
    };
    Columns<kKeyDim> own;
    for (int n = 0; n < kFours; ++n) {
        for (int i = 0; i < 4; ++i) {
            for (int c = 0; c < kOwn; ++c) own.memory[c][n][i] = args.from.memory[entry(n, i) + c];
        }
    }
    const bool stores = part % (Own::kParts / 4) == Own::kParts / 8;
    float* out = rows.out.data + at.column + column;
    bring(stages[0], rows, at, shape.key_heads, 0);
    for (std::int64_t first = 0; first < rows.out.rows; first += kRows) {
        const Stage<kKeyDim>& stage = stages[first / kRows % 2];
        wait_copies<0>();
        __syncthreads();
        // All of the block have left the other stage.
        bring(stages[(first / kRows + 1) % 2], rows, at, shape.key_heads, first + kRows);
        Inputs<kKeyDim> next;
        next.load(stage, 0, part, column);
        const auto step = [&](int later) {
            const Inputs<kKeyDim> in = next;
            next.load(stage, later, part, column);
            const float o = own.step(in, lane);
            if (stores) *out = o;
            out += rows.out.cols;
        };
        if (rows.out.rows - first >= kRows) {
#pragma unroll 1
            for (int row = 0; row < kRows; row += kUnrolled) {
#pragma unroll
                for (int i = 0; i < kUnrolled; ++i) step(row + i + 1);
            }
        } else {
            const auto count = static_cast<int>(rows.out.rows - first);
#pragma unroll 1
            for (int row = 0; row < count; ++row) step(row + 1);
        }
    }
    for (int n = 0; n < kFours; ++n) {
        for (int i = 0; i < 4; ++i) {
            for (int c = 0; c < kOwn; ++c) args.to.memory[entry(n, i) + c] = own.memory[c][n][i];
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
            Split<kKeyDim>::kThreads, 2 * sizeof(Stage<kKeyDim>)},
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
