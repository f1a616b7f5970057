// Bounded by the logarithms and divisions of every logit: blocks of threads each take a piece of a
// row, once for the largest and once for the list, and one a row puts the pieces together.
#include "op/draw.h"

#include "backend/cuda/choose.cuh"
#include "backend/cuda/draw_filter.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "base/check.h"
#include "base/philox.h"

namespace strata::cuda {
namespace {

// A penalized logit and where it stands; row -1: none.
using Largest = BestOf<double>;

struct Pieces {
    Largest* largest;  // [rows, count]
    int* broken;       // [rows, count]: whether some logit is NaN
    int count;
};

// How often row t penalizes for a token.
__device__ int count_at(const op::DrawRule& rule, const op::Penalized& of, int t) {
    int count = of.count;
    for (int i = 0; i < t; ++i) {
        count += (rule.joins[i] == of.token ? 1 : 0) - (rule.leaves[i] == of.token ? 1 : 0);
    }
    return count;
}

// Where a token stands in a row of logits; below 0: nowhere.
__device__ std::int64_t row_of_token(const op::Draw& args, int token) {
    if (args.token_of_row.empty()) return token;
    std::int64_t low = 0;
    std::int64_t high = args.logits.cols;
    while (low < high) {
        const std::int64_t middle = (low + high) / 2;
        if (args.token_of_row[middle] < token) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < args.logits.cols && args.token_of_row[low] == token ? low : -1;
}

__device__ std::uint32_t token_of(const op::Draw& args, std::int64_t row) {
    return static_cast<std::uint32_t>(args.token_of_row.empty() ? row : args.token_of_row[row]);
}

// The penalized logits that a thread of block (piece, row) holds, of whose rows the first is
// `first`; -infinity where there are none. `counts` is shared memory of a piece.
__device__ void hold(const op::Draw& args, int* counts, double (&held)[kLogitsHeld]) {
    const int t = static_cast<int>(blockIdx.y);
    const std::int64_t piece = std::int64_t{blockIdx.x} * kPieceLogits;
    const op::DrawRule& rule = *args.rule;
    const int thread = static_cast<int>(threadIdx.x);
    if (rule.penalized > 0) {
        for (int i = thread; i < kPieceLogits; i += kLogitThreads) counts[i] = 0;
        __syncthreads();
        for (std::int64_t i = thread; i < rule.penalized; i += kLogitThreads) {
            const op::Penalized one = args.penalized[i];
            const std::int64_t at = row_of_token(args, one.token) - piece;
            if (at >= 0 && at < kPieceLogits) counts[at] = count_at(rule, one, t);
        }
        __syncthreads();
    }
    const float* logits = args.logits.row(t);
#pragma unroll
    for (int i = 0; i < kLogitsHeld; ++i) {
        const int own = i * kLogitThreads + thread;
        held[i] = -INFINITY;
        if (piece + own >= args.logits.cols) continue;
        held[i] = logits[piece + own];
        if (rule.penalized == 0 || counts[own] <= 0) continue;
        held[i] = op::penalized_logit(rule, held[i], counts[own]);
    }
}

// Block (piece, row).
__global__ void __launch_bounds__(kLogitThreads)
    largest_of_pieces(const __grid_constant__ op::Draw args, Pieces pieces) {
    follow_earlier_kernels();
    __shared__ int counts[kPieceLogits];
    __shared__ Largest scratch[kLogitWarps];
    __shared__ int any[kLogitWarps];
    double held[kLogitsHeld];
    hold(args, counts, held);
    const int first = static_cast<int>(blockIdx.x) * kPieceLogits + static_cast<int>(threadIdx.x);
    Largest own{-INFINITY, -1};
    int broken = 0;
#pragma unroll
    for (int i = 0; i < kLogitsHeld; ++i) {
        const Largest one{held[i], first + i * kLogitThreads};
        if (held[i] != held[i]) broken = 1;
        if (one.row < args.logits.cols && one.before(own)) own = one;
    }
    own = best_of_block<kLogitThreads>(own, scratch);
    broken = warp_sum(broken);
    if (threadIdx.x % kWarp == 0) any[threadIdx.x / kWarp] = broken;
    __syncthreads();
    if (threadIdx.x != 0) return;
    broken = 0;
    for (const int one : any) broken |= one;
    const std::int64_t at = std::int64_t{blockIdx.y} * pieces.count + blockIdx.x;
    pieces.largest[at] = own;
    pieces.broken[at] = broken;
}

// Of the whole row; row -1: the row has none that is finite, or a NaN.
__device__ Largest largest_of_row(const Pieces& pieces, std::int64_t t, Largest* scratch) {
    Largest own{-INFINITY, -1};
    int broken = 0;
    for (int p = static_cast<int>(threadIdx.x); p < pieces.count; p += kLogitThreads) {
        const Largest one = pieces.largest[t * pieces.count + p];
        if (one.before(own)) own = one;
        broken |= pieces.broken[t * pieces.count + p];
    }
    own = best_of_block<kLogitThreads>(own, scratch);
    // One voice is enough.
    const Largest voice =
        best_of_block<kLogitThreads>(Largest{broken != 0 ? 1.0 : 0.0, 0}, scratch);
    if (voice.logit != 0.0 || !(fabs(own.logit) < INFINITY)) own.row = -1;
    return own;
}

// base/philox.h's, in F32.
__device__ float noise_of(const op::DrawRule& rule, int t, std::uint32_t token) {
    const double u = uniform(rule.seed, static_cast<std::uint64_t>(rule.position + t), token);
    const float exponential =
        u < 0.5 ? -logf(static_cast<float>(u)) : -log1pf(-static_cast<float>(1.0 - u));
    return -logf(exponential);
}

// What find_filters() reads: block (piece, row).
__global__ void __launch_bounds__(kLogitThreads)
    scale_pieces(const __grid_constant__ op::Draw args, Pieces pieces, MatrixView<float> scaled) {
    follow_earlier_kernels();
    __shared__ int counts[kPieceLogits];
    __shared__ Largest scratch[kLogitWarps];
    double logits[kLogitsHeld];
    hold(args, counts, logits);
    const Largest largest = largest_of_row(pieces, blockIdx.y, scratch);
    const double temperature = args.rule->temperature;
    const bool listed = largest.row >= 0 && temperature > 0;
    const std::int64_t first = std::int64_t{blockIdx.x} * kPieceLogits + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kLogitsHeld; ++i) {
        const std::int64_t row = first + i * kLogitThreads;
        if (row >= args.logits.cols) continue;
        const double own = listed ? (logits[i] - largest.logit) / temperature : -INFINITY;
        scaled.row(blockIdx.y)[row] = static_cast<float>(own);
    }
}

// Block (piece, row).
__global__ void __launch_bounds__(kLogitThreads)
    list_of_pieces(const __grid_constant__ op::Draw args, Pieces pieces, Filters filters,
                   Lists lists) {
    follow_earlier_kernels();
    __shared__ int counts[kPieceLogits];
    __shared__ Largest scratch[kLogitWarps];
    const int t = static_cast<int>(blockIdx.y);
    const op::DrawRule& rule = *args.rule;
    double logits[kLogitsHeld];
    hold(args, counts, logits);
    const Largest largest = largest_of_row(pieces, t, scratch);
    const bool listed = largest.row >= 0 && rule.temperature > 0;
    const int first = static_cast<int>(blockIdx.x) * kPieceLogits + static_cast<int>(threadIdx.x);
    Best held[kLogitsHeld];
#pragma unroll
    for (int i = 0; i < kLogitsHeld; ++i) {
        const int row = first + i * kLogitThreads;
        held[i] = {0.0f, -1};
        if (!listed || row >= args.logits.cols) continue;
        const double scaled = (logits[i] - largest.logit) / rule.temperature;
        if (!(scaled >= rule.lowest) || filters.kept(rule, t, depth_of(scaled)) == 0) continue;
        const float noise = noise_of(rule, t, token_of(args, row));
        held[i] = {static_cast<float>(scaled) + noise, row};
    }
    if (threadIdx.x == 0) lists.finite[std::int64_t{blockIdx.y} * lists.lists + blockIdx.x] = 1;
    choose(held, lists.wanted, lists.at(t, static_cast<int>(blockIdx.x)));
}

// op::Drawn, as shared memory can have it.
struct Entry {
    int token;
    int count;
    float logit;
    float score;
    int sure;
};

__device__ bool is_sure(const op::Draw& args, const Filters& filters, const Entry& entry, int t,
                        double largest) {
    double logit = entry.logit;
    if (entry.count > 0) logit = op::penalized_logit(*args.rule, logit, entry.count);
    const double scaled = (logit - largest) / args.rule->temperature;
    return filters.kept(*args.rule, t, depth_of(scaled)) == 2;
}

// Block (row).
__global__ void __launch_bounds__(kLogitThreads)
    fill_drawn(const __grid_constant__ op::Draw args, Pieces pieces, Filters filters, Lists lists) {
    follow_earlier_kernels();
    __shared__ Largest scratch[kLogitWarps];
    __shared__ Entry drawn[1 + op::kDrawnMax];
    const int t = static_cast<int>(blockIdx.x);
    const int count = static_cast<int>(args.drawn.cols);
    const Largest largest = largest_of_row(pieces, t, scratch);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kLogitThreads) {
        const Best best = i == 0 ? Best{0.0f, largest.row} : lists.at(t, 0)[i - 1];
        drawn[i] = {-1, 0, 0.0f, 0.0f, 0};
        if (best.row < 0) continue;
        drawn[i] = {static_cast<int>(token_of(args, best.row)), 0, args.logits.row(t)[best.row],
                    best.logit, 0};
    }
    __syncthreads();
    for (std::int64_t p = threadIdx.x; p < args.rule->penalized; p += kLogitThreads) {
        const op::Penalized one = args.penalized[p];
        for (int i = 0; i < count; ++i) {
            if (drawn[i].token != one.token) continue;
            const int times = count_at(*args.rule, one, t);
            drawn[i].count = times > 0 ? times : 0;
        }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kLogitThreads) {
        Entry& own = drawn[i];
        if (own.token >= 0) own.sure = i == 0 || is_sure(args, filters, own, t, largest.logit);
        args.drawn.row(t)[i] = {own.token, own.count, own.logit, own.score, own.sure};
    }
}

}  // namespace

void draw(const op::Draw& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    const std::int64_t rows = args.logits.rows;
    const std::int64_t width = args.logits.cols;
    const std::int64_t listed = args.drawn.cols - 1;
    STRATA_CHECK(width >= 1 && rows <= op::kDrawRowsMax && args.drawn.rows == rows);
    STRATA_CHECK(listed >= 0 && listed <= op::kDrawnMax);
    STRATA_CHECK(args.token_of_row.empty() || args.token_of_row.size == width);
    if (rows == 0) return;
    const std::int64_t count = (width + kPieceLogits - 1) / kPieceLogits;
    const Pieces pieces{own.take<Largest>(rows * count), own.take<int>(rows * count),
                        static_cast<int>(count)};
    const Grid grid{dim3(static_cast<unsigned>(count), static_cast<unsigned>(rows)), kLogitThreads};
    const Grid row_grid{dim3(static_cast<unsigned>(rows)), kLogitThreads};
    launch_dependent(own, grid, largest_of_pieces, args, pieces);
    Lists lists{};
    Filters filters{nullptr, nullptr};
    if (listed > 0 && args.filters != 0) {
        const MatrixView<float> scaled = own.matrix(rows, width);
        launch_dependent(own, grid, scale_pieces, args, pieces, scaled);
        filters = find_filters(own, args, scaled);
    }
    if (listed > 0) {
        const Lists of_pieces = make_lists(own, rows, count, listed);
        launch_dependent(own, grid, list_of_pieces, args, pieces, filters, of_pieces);
        lists = best_of_lists(own, of_pieces, rows);
    }
    launch_dependent(own, row_grid, fill_drawn, args, pieces, filters, lists);
}

}  // namespace strata::cuda
