// The recurrence, row after row, so that where a prompt was cut changes no bit. Columns of a memory
// never meet, so a warp takes four of a head's through all rows in its registers: 1,536 warps at
// 48 heads of 128. Bound by the steps' latency and multiply-adds, 4 an entry of the memory and row;
// what a step reads is brought to shared memory some rows ahead.
//
// d = beta (v - alpha M^T k);  M <- alpha M + k d^T;  o = alpha M^T q + (q . k) d, the last from
// the memory before, so that both reads of it are one pass and their sums travel together.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/prompt_delta.h"
#include "backend/cuda/tensor_core.cuh"
#include "base/check.h"

namespace strata::cuda::prompt {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kWarpColumns = 4;
constexpr int kColumns = kWarps * kWarpColumns;  // of a block
constexpr int kParts = kWarp / kWarpColumns;     // lanes that share a column
constexpr int kRows = 16;                        // brought at a time

// What kRows rows bring to a block.
template <int kKeyDim>
struct Stage {
    float q[kRows][kKeyDim];
    float k[kRows][kKeyDim];
    float v[kRows][kColumns];
    float match[kRows];
    float beta[kRows];
    float decay[kRows];
};

struct Where {
    int head;
    int key;
    int column;  // the block's first
};

template <int kKeyDim>
__device__ void bring(Stage<kKeyDim>& stage, const DeltaRows& rows, const Where& at, int key_heads,
                      std::int64_t first) {
    const std::int64_t count = rows.out.rows;
    const auto thread = static_cast<int>(threadIdx.x);
    constexpr int kPieces = kKeyDim / 4;
    for (int i = thread; i < kRows * kPieces; i += kThreads) {
        const int row = i / kPieces;
        const int piece = i % kPieces * 4;
        const bool take = first + row < count;
        const float* from = rows.units.row(take ? first + row : 0) + at.key * kKeyDim + piece;
        copy_async(&stage.q[row][piece], from, take);
        copy_async(&stage.k[row][piece], from + key_heads * kKeyDim, take);
    }
    for (int i = thread; i < kRows * (kColumns / 4); i += kThreads) {
        const int row = i / (kColumns / 4);
        const int piece = i % (kColumns / 4) * 4;
        const bool take = first + row < count;
        const float* from = rows.values.data + (take ? first + row : 0) * rows.value_stride;
        copy_async(&stage.v[row][piece], from + at.column + piece, take);
    }
    if (thread < kRows && first + thread < count) {
        stage.match[thread] = rows.match.row(first + thread)[at.key];
        stage.beta[thread] = rows.beta.row(first + thread)[at.head];
        stage.decay[thread] = rows.decay.row(first + thread)[at.head];
    }
    commit_copies();
}

// Sum over the lanes of a column, the same in all.
__device__ float column_sum(float value) {
#pragma unroll
    for (int by = kParts / 2; by > 0; by /= 2) value += __shfl_xor_sync(kAllLanes, value, by);
    return value;
}

// The lane's entries of a column: rows 4 part + 4 kParts n + i of the memory.
template <int kKeyDim>
struct Column {
    static constexpr int kFours = kKeyDim / (4 * kParts);
    float memory[kFours][4];

    __device__ static void load(const float* row, int part, float (&to)[kFours][4]) {
#pragma unroll
        for (int n = 0; n < kFours; ++n) {
            const float4 four = *reinterpret_cast<const float4*>(row + 4 * part + 4 * kParts * n);
            to[n][0] = four.x, to[n][1] = four.y, to[n][2] = four.z, to[n][3] = four.w;
        }
    }
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
    // Returns o.
    __device__ float step(const Stage<kKeyDim>& stage, int row, int part, int column) {
        float k[kFours][4];
        float q[kFours][4];
        load(stage.k[row], part, k);
        load(stage.q[row], part, q);
        const float alpha = stage.decay[row];
        const float seen = column_sum(dot(k, memory));
        const float read = column_sum(dot(q, memory));
        const float d = stage.beta[row] * (stage.v[row][column] - alpha * seen);
#pragma unroll
        for (int n = 0; n < kFours; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                memory[n][i] = __fmaf_rn(k[n][i], d, alpha * memory[n][i]);
            }
        }
        return __fmaf_rn(stage.match[row], d, alpha * read);
    }
};

template <int kKeyDim>
__global__ void __launch_bounds__(kThreads) run_heads(op::DeltaNet args, DeltaRows rows) {
    auto* stages = reinterpret_cast<Stage<kKeyDim>*>(shared_bytes());
    const op::DeltaShape& shape = args.shape;
    const auto lane = static_cast<int>(threadIdx.x) % kWarp;
    const int part = lane % kParts;
    const int column = static_cast<int>(threadIdx.x) / kWarp * kWarpColumns + lane / kParts;
    Where at;
    at.head = static_cast<int>(blockIdx.y);
    at.key = args.order == op::HeadOrder::tiled ? at.head % shape.key_heads
                                                : at.head / (shape.value_heads / shape.key_heads);
    at.column = at.head * shape.value_dim + static_cast<int>(blockIdx.x) * kColumns;
    const std::int64_t state = std::int64_t{at.head} * kKeyDim * shape.value_dim +
                               static_cast<int>(blockIdx.x) * kColumns + column;
    Column<kKeyDim> own;
    constexpr int kFours = Column<kKeyDim>::kFours;
    const auto entry = [&](int n, int i) {
        return state + (4 * part + 4 * kParts * n + i) * std::int64_t{shape.value_dim};
    };
    for (int n = 0; n < kFours; ++n) {
        for (int i = 0; i < 4; ++i) own.memory[n][i] = args.from.memory[entry(n, i)];
    }
    bring(stages[0], rows, at, shape.key_heads, 0);
    for (std::int64_t first = 0; first < rows.out.rows; first += kRows) {
        Stage<kKeyDim>& stage = stages[first / kRows % 2];
        // The other stage was left before the barrier that ended the last round.
        bring(stages[(first / kRows + 1) % 2], rows, at, shape.key_heads, first + kRows);
        wait_copies<1>();
        __syncthreads();
        const auto count = static_cast<int>(min(std::int64_t{kRows}, rows.out.rows - first));
        for (int row = 0; row < count; ++row) {
            const float o = own.step(stage, row, part, column);
            if (part == 0) rows.out.row(first + row)[at.column + column] = o;
        }
        __syncthreads();
    }
    for (int n = 0; n < kFours; ++n) {
        for (int i = 0; i < 4; ++i) args.to.memory[entry(n, i)] = own.memory[n][i];
    }
}

template <int kKeyDim>
void start(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows) {
    const op::DeltaShape& shape = args.shape;
    launch(queue,
           {dim3(static_cast<unsigned>(shape.value_dim / kColumns),
                 static_cast<unsigned>(shape.value_heads)),
            kThreads, 2 * sizeof(Stage<kKeyDim>)},
           run_heads<kKeyDim>, args, rows);
}

}  // namespace

bool runs_delta(const op::DeltaShape& shape) {
    return (shape.key_dim == 128 || shape.key_dim == 64 || shape.key_dim == 32) &&
           shape.value_dim % kColumns == 0;
}

void run_delta(Queue& queue, const op::DeltaNet& args, const DeltaRows& rows) {
    STRATA_CHECK(runs_delta(args.shape));
    if (args.shape.key_dim == 128) return start<128>(queue, args, rows);
    if (args.shape.key_dim == 64) return start<64>(queue, args, rows);
    start<32>(queue, args, rows);
}

}  // namespace strata::cuda::prompt
