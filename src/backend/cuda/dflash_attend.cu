// Bounded by reading the cells: once a row. Blocks of threads go through the positions that some
// row may see in turn, a piece at a time, each for some heads of a row that share a key head; one
// more has the rows of the block itself. Cells were written long before, so they are asked for
// before the queries are there.
#include "backend/cuda/dflash_attend.cuh"

#include <algorithm>
#include <type_traits>

#include "backend/cuda/ahead.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/piece.cuh"

namespace strata::cuda {
namespace {

constexpr int kWarps = kPieceThreads / kWarp;
static_assert(kEntries == kPiece);
// Of a multiprocessor, which registers are enough for.
template <typename Cache>
constexpr int kBlocksOfOne = std::is_same_v<Cache, CacheF32> ? 3 : 4;
// So that a draft of a few rows is at work on all of the largest devices at once. Sums of a row
// are in the same order whatever the rows are.
constexpr int kSpread = 15;

// What a block works on: block (0 for rows or 1 + turn for cells, key head and set of heads, row).
struct Task {
    int g;
    int from;  // first head of the group
    int count;
    int row;

    __device__ static Task of(const Attend& attend) {
        const int from = static_cast<int>(blockIdx.y) % attend.sets() * kQueriesOfBlock;
        return {.g = static_cast<int>(blockIdx.y) / attend.sets(),
                .from = from,
                .count = min(kQueriesOfBlock, attend.group - from),
                .row = static_cast<int>(blockIdx.z)};
    }
    __device__ std::int64_t at(const Attend& attend, int part) const {
        return attend.at(g, part, row * attend.group + from);
    }
};

__device__ inline bool has_rows() { return blockIdx.x == 0; }
// The first piece of a block that has cells.
__device__ inline int first_piece() { return static_cast<int>(blockIdx.x) - 1; }
__device__ inline int own_warp() { return static_cast<int>(threadIdx.x) / kWarp; }
__device__ inline int own_lane() { return static_cast<int>(threadIdx.x) % kWarp; }

// queries[place(q, c)] = value c of head q of a task, normed and turned; zeros of those that are
// not there. `held` is memory of a head a warp.
template <typename TurnAt, typename Place>
__device__ void bring_queries(const Attend& attend, const Task& task, TurnAt turn_at, float* held,
                              Place place, float* queries) {
    const int d = attend.shape.head_dim;
    const float* row = attend.rows.query.row(task.row) + (task.g * attend.group + task.from) * d;
    for (int q = own_warp(); q < kQueriesOfBlock; q += kWarps) {
        if (q >= task.count) {
            for (int c = own_lane(); c < d; c += kWarp) queries[place(q, c)] = 0.0f;
            continue;
        }
        norm_and_turn(row + q * d, d, attend.query_norm, attend.epsilon, attend.shape.rotary_pairs,
                      turn_at, held + own_warp() * d,
                      [&](int c, float value) { queries[place(q, c)] = value; });
    }
}

// The scores of a task's queries with row j of the block, by a warp.
template <typename Place>
__device__ void score_row(const Attend& attend, const Task& task, int j, const float* queries,
                          Place place, float* held, float* scores) {
    const int d = attend.shape.head_dim;
    norm_and_turn(attend.rows.key.row(j) + task.g * d, d, attend.key_norm, attend.epsilon,
                  attend.turns(j), held, [&](int c, float value) { held[c] = value; });
    float sums[kQueriesOfBlock] = {};
    for (int c = own_lane(); c < d; c += kWarp) {
#pragma unroll
        for (int q = 0; q < kQueriesOfBlock; ++q) {
            sums[q] = __fmaf_rn(queries[place(q, c)], held[c], sums[q]);
        }
    }
#pragma unroll
    for (int q = 0; q < kQueriesOfBlock; ++q) {
        const float sum = warp_sum(sums[q]);
        if (own_lane() == 0) scores[q] = sum;
    }
    __syncwarp();
}

// The parts that are rows of the block. `scores` is memory of kPiece * kQueriesOfBlock values.
template <typename Place>
__device__ void attend_rows(const Attend& attend, const Task& task, const float* queries,
                            Place place, float* held, float* scores) {
    const int d = attend.shape.head_dim;
#pragma unroll 1
    for (int part = 0; part < attend.own_parts(); ++part) {
        const int begin = part * kPiece;
        const int rows = min(kPiece, attend.count - begin);
        for (int e = own_warp(); e < kPiece; e += kWarps) {
            float* own = scores + e * kQueriesOfBlock;
            if (e < rows && attend.sees_row(task.row, begin + e)) {
                score_row(attend, task, begin + e, queries, place, held + own_warp() * d, own);
            } else if (own_lane() < kQueriesOfBlock) {
                own[own_lane()] = -INFINITY;
            }
        }
        __syncthreads();
        const std::int64_t at = task.at(attend, part);
        weigh(scores, kQueriesOfBlock, task.count, 1.0f / sqrtf(static_cast<float>(d)),
              attend.largest + at, attend.sum + at);
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < task.count * d; i += kPieceThreads) {
            const float* value = attend.rows.value.row(begin) + task.g * d + i % d;
            float sum = 0.0f;
#pragma unroll 8
            for (int e = 0; e < rows; ++e) {
                sum = __fmaf_rn(scores[e * kQueriesOfBlock + i / d],
                                value[e * attend.rows.value.cols], sum);
            }
            attend.values[at * d + i] = sum;
        }
        __syncthreads();
    }
}

// Any shape, a piece a block.
template <typename Cache>
__global__ void __launch_bounds__(kPieceThreads)
    attend_any(Attend attend, const __grid_constant__ Ahead ahead) {
    follow_earlier_kernels();
    ahead.ask();
    attend.look_up();
    __shared__ int slots[kPiece];
    __shared__ int positions[kPiece];
    __shared__ float scores[kPiece * kQueriesOfBlock];
    if (!has_rows() && first_piece() >= attend.pieces_used()) return;
    const Task task = Task::of(attend);
    const int d = attend.shape.head_dim;
    const auto thread = static_cast<int>(threadIdx.x);
    auto* const queries = reinterpret_cast<float*>(shared_bytes());
    float* const held = queries + kQueriesOfBlock * d;
    const auto place = [d](int q, int c) { return q * d + c; };
    const Turns turns = attend.turns(task.row);
    bring_queries(
        attend, task, [&](int i) { return turn_of(turns, i); }, held, place, queries);
    __syncthreads();
    if (has_rows()) return attend_rows(attend, task, queries, place, held, scores);
    if (thread < kPiece) attend.find(first_piece(), thread, &slots[thread], &positions[thread]);
    __syncthreads();
    const auto cell = [&](const void* cache, int e) {
        return Cache::head(cache, attend.shape.kv_heads, d, slots[e], task.g);
    };
    for (int pair = thread; pair < kPiece * kQueriesOfBlock; pair += kPieceThreads) {
        const int e = pair / kQueriesOfBlock;
        float sum = -INFINITY;
        if (attend.sees(task.row, positions[e])) {
            const auto key = cell(attend.cells.keys, e);
            const float* query = queries + pair % kQueriesOfBlock * d;
            sum = 0.0f;
            for (int c = 0; c < d; ++c) sum = __fmaf_rn(query[c], Cache::value(key, c), sum);
        }
        scores[pair] = sum;
    }
    __syncthreads();
    const std::int64_t at = task.at(attend, attend.own_parts() + first_piece());
    weigh(scores, kQueriesOfBlock, task.count, 1.0f / sqrtf(static_cast<float>(d)),
          attend.largest + at, attend.sum + at);
    __syncthreads();
    for (int i = thread; i < task.count * d; i += kPieceThreads) {
        float sum = 0.0f;
        for (int e = 0; e < kPiece; ++e) {
            const float weight = scores[e * kQueriesOfBlock + i / d];
            if (weight == 0.0f) continue;  // the cell may hold anything
            sum = __fmaf_rn(weight, Cache::value(cell(attend.cells.values, e), i % d), sum);
        }
        attend.values[at * d + i] = sum;
    }
}

// Where a block of attend_held() has what its threads share.
template <int kDim>
struct HeldShared {
    int slots[kPiece];
    int positions[kPiece];
    alignas(16) float queries[kQueriesOfBlock * kDim];
    alignas(16) float scores[kPiece * kQueriesOfBlock];
    float heads[kWarps * kDim];
    float largest[kQueriesOfBlock];
    float sums[kQueriesOfBlock];
};

template <typename Held, int kDim>
__device__ __forceinline__ void load_piece(const Attend& attend, int g, int piece,
                                           HeldShared<kDim>& shared, Held& held) {
    const auto thread = static_cast<int>(threadIdx.x);
    if (thread < kPiece) {
        attend.find(piece, thread, &shared.slots[thread], &shared.positions[thread]);
    }
    __syncthreads();
    held.load(attend.cells.keys, attend.cells.values, attend.shape.kv_heads, g, shared.slots);
}

// Heads of kDim, that of published models.
template <typename Cache, int kDim>
__global__ void __launch_bounds__(kPieceThreads, kBlocksOfOne<Cache>)
    attend_held(Attend attend, const __grid_constant__ Ahead ahead) {
    using Held = HeldPiece<Cache, kDim, kQueriesOfBlock>;
    constexpr int kTurns = kDim / 2 / kWarp;  // of a lane
    __shared__ HeldShared<kDim> shared;
    // What is read before the wait no kernel of this op writes: who did has ended.
    attend.look_up();
    const Task task = Task::of(attend);
    const int used = attend.pieces_used();
    int piece = first_piece();
    if (!has_rows() && piece >= used) {
        follow_earlier_kernels();
        return ahead.ask();
    }
    Held held;
    if (!has_rows()) load_piece(attend, task.g, piece, shared, held);
    float2 turns[kTurns];
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
        const int pair = min(own_lane() + i * kWarp, attend.shape.rotary_pairs - 1);
        turns[i] = turn_of(attend.turns(task.row), max(pair, 0));
    }
    follow_earlier_kernels();
    ahead.ask();
    const auto place = [](int q, int c) { return q * kDim + eight_at(c, kDim / kEight); };
    bring_queries(
        attend, task, [&](int i) { return turns[i >= kWarp ? kTurns - 1 : 0]; }, shared.heads,
        place, shared.queries);
    static_assert(kTurns <= 2);
    __syncthreads();
    if (has_rows()) {
        return attend_rows(attend, task, shared.queries, place, shared.heads, shared.scores);
    }
    Softmax<Held::kOwn> all[kQueriesOfBlock];
#pragma unroll 1
    while (true) {
        held.values.clear([&](int e) { return shared.positions[e] < 0; });
        held.score(
            shared.queries, [&](int e, int) { return attend.sees(task.row, shared.positions[e]); },
            shared.scores);
        __syncthreads();
        weigh(shared.scores, kQueriesOfBlock, kQueriesOfBlock,
              1.0f / sqrtf(static_cast<float>(kDim)), shared.largest, shared.sums);
        __syncthreads();
        float values[kQueriesOfBlock][Held::kOwn] = {};
        held.sum_values(shared.scores, values);
#pragma unroll
        for (int q = 0; q < kQueriesOfBlock; ++q) {
            all[q].add(shared.largest[q], shared.sums[q], values[q]);
        }
        piece += attend.spread;
        if (piece >= used) break;
        load_piece(attend, task.g, piece, shared, held);
    }
    const std::int64_t at = task.at(attend, attend.own_parts() + first_piece());
#pragma unroll
    for (int q = 0; q < kQueriesOfBlock; ++q) {
        if (q >= task.count) break;
#pragma unroll
        for (int i = 0; i < Held::kOwn; ++i) {
            attend.values[(at + q) * kDim + Held::kOwn * threadIdx.x + i] = all[q].values[i];
        }
        if (threadIdx.x != 0) continue;
        attend.largest[at + q] = all[q].largest;
        attend.sum[at + q] = all[q].sum;
    }
}

constexpr int kHeldDim = 128;

bool is_held(const op::DflashShape& shape, const op::DflashCells& cells) {
    return shape.head_dim == kHeldDim && reads_as_eights(cells.keys) &&
           reads_as_eights(cells.values);
}

template <typename Cache>
void launch_attend(Queue& queue, const Attend& attend, const Ahead& ahead) {
    const dim3 blocks(static_cast<unsigned>(1 + attend.spread),
                      static_cast<unsigned>(attend.shape.kv_heads * attend.sets()),
                      static_cast<unsigned>(attend.count));
    if (is_held(attend.shape, attend.cells)) {
        launch_dependent(queue, {blocks, kPieceThreads}, attend_held<Cache, kHeldDim>, attend,
                         ahead);
    } else {
        const auto heads = static_cast<std::size_t>(kQueriesOfBlock + kWarps);
        const auto dim = static_cast<std::size_t>(attend.shape.head_dim);
        launch_dependent(queue, {blocks, kPieceThreads, heads * dim * sizeof(float)},
                         attend_any<Cache>, attend, ahead);
    }
}

}  // namespace

void dflash_attend(Queue& queue, const op::DflashBlock& args, const op::DflashLayer& layer,
                   const DflashRows& rows, const DraftRows& to) {
    Attend attend{};
    attend.shape = args.shape;
    attend.cells = layer.cells;
    attend.first = args.first;
    attend.first_at = args.first_at;
    attend.window = layer.window;
    attend.query_norm = layer.query_norm;
    attend.key_norm = layer.key_norm;
    attend.inverse_frequency = args.inverse_frequency;
    attend.epsilon = args.epsilon;
    attend.rows = rows;
    attend.count = to.rows;
    attend.group = args.shape.heads / args.shape.kv_heads;
    // With a window the grid does not depend on where the block stands.
    const std::int64_t longest =
        std::min(layer.cells.slots, layer.window > 0 ? layer.window - 1 : args.first);
    attend.spread = static_cast<int>((longest + kPiece - 1) / kPiece);
    if (is_held(args.shape, layer.cells)) attend.spread = std::min(attend.spread, kSpread);
    const std::int64_t each = std::int64_t{args.shape.kv_heads} * attend.parts() * attend.queries();
    attend.largest = queue.take<float>(each);
    attend.sum = queue.take<float>(each);
    attend.values = queue.take<float>(each * args.shape.head_dim);
    const Product out{layer.out, {}};
    const Ahead ahead = Ahead::of({&out, 1});
    with_cache(layer.cells.type,
               [&](auto type) { launch_attend<decltype(type)>(queue, attend, ahead); });
    dflash_join(queue, attend, to);
}

}  // namespace strata::cuda
