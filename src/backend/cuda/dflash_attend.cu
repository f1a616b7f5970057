// Bounded by reading the cells: once a row. Blocks of threads go through the positions that some
// row may see in turn, a piece at a time, each for some heads of a row that share a key head; one
// more has the rows of the block itself. Cells were written long before, so they are on their way
// to the device's cache before the queries are there.
#include "backend/cuda/dflash_task.cuh"

#include <algorithm>
#include <type_traits>

#include "backend/cuda/ahead.cuh"
#include "backend/cuda/launch.cuh"

namespace strata::cuda {
namespace {

// Of a multiprocessor, which registers are enough for.
template <typename Cache>
constexpr int kBlocksOfOne = std::is_same_v<Cache, CacheF32> ? 3 : 4;
// So that a draft of a few rows is at work on all of the largest devices at once. Sums of a row
// are in the same order whatever the rows are.
constexpr int kSpread = 15;

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
    float heads[kAttendWarps * kDim];
    float largest[kQueriesOfBlock];
    float sums[kQueriesOfBlock];
};

template <int kDim>
__device__ void find_piece(const Attend& attend, int piece, HeldShared<kDim>& shared) {
    const auto thread = static_cast<int>(threadIdx.x);
    if (thread < kPiece) {
        attend.find(piece, thread, &shared.slots[thread], &shared.positions[thread]);
    }
    __syncthreads();
}

// The lines of a piece, but for scales: half of a key's or a value's a thread.
template <typename Cache, int kDim>
__device__ void prefetch_piece(const Attend& attend, int g, int piece) {
    const auto thread = static_cast<int>(threadIdx.x);
    const int part = thread % (kPieceThreads / kPiece);
    const void* cache = part < 2 ? attend.cells.keys : attend.cells.values;
    const auto head = Cache::head(cache, attend.shape.kv_heads, kDim,
                                  attend.slot_of(piece, thread / (kPieceThreads / kPiece)), g);
    const auto* from = reinterpret_cast<const std::byte*>(head.values);
    for (int at = part % 2 * kLineBytes; at < kDim * static_cast<int>(sizeof(*head.values));
         at += 2 * kLineBytes) {
        prefetch(from + at);
    }
}

// What a block has of its cells; a thread has kOwn dimensions.
template <int kDim, int kOwn>
__device__ void store_part(const Attend& attend, const Task& task,
                           const Softmax<kOwn> (&all)[kQueriesOfBlock]) {
    const std::int64_t at = task.at(attend, attend.own_parts() + first_piece());
#pragma unroll
    for (int q = 0; q < kQueriesOfBlock; ++q) {
        if (q >= task.count) break;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            attend.values[(at + q) * kDim + kOwn * threadIdx.x + i] = all[q].values[i];
        }
        if (threadIdx.x != 0) continue;
        attend.largest[at + q] = all[q].largest;
        attend.sum[at + q] = all[q].sum;
    }
}

// How the pairs of a lane turn in a row; lanes past the last pair take that one's.
template <int kTurns>
__device__ void find_turns(const Attend& attend, int row, float2 (&turns)[kTurns]) {
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
        const int pair = min(own_lane() + i * kWarp, attend.shape.rotary_pairs - 1);
        if (pair >= 0) turns[i] = turn_of(attend.turns(row), pair);
    }
}

// Heads of kDim, that of published models.
template <typename Cache, int kDim>
__global__ void __launch_bounds__(kPieceThreads, kBlocksOfOne<Cache>)
    attend_held(Attend attend, const __grid_constant__ Ahead ahead) {
    using Held = HeldPiece<Cache, kDim, kQueriesOfBlock>;
    constexpr int kTurns = kDim / 2 / kWarp;  // of a lane
    __shared__ HeldShared<kDim> shared;
    attend.look_up();
    const Task task = Task::of(attend);
    const int used = attend.pieces_used();
    int piece = first_piece();
    if (!has_rows() && piece >= used) {
        follow_earlier_kernels();
        return ahead.ask();
    }
    if (!has_rows()) {
#pragma unroll 1
        for (int p = piece; p < used; p += attend.spread) {
            prefetch_piece<Cache, kDim>(attend, task.g, p);
        }
        find_piece(attend, piece, shared);
    }
    float2 turns[kTurns] = {};
    find_turns(attend, task.row, turns);
    follow_earlier_kernels();
    ahead.ask();
    Held held;
    const auto load = [&] {
        held.load(attend.cells.keys, attend.cells.values, attend.shape.kv_heads, task.g,
                  shared.slots);
    };
    if (!has_rows()) load();
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
        find_piece(attend, piece, shared);
        load();
    }
    store_part<kDim>(attend, task, all);
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
        const auto heads = static_cast<std::size_t>(kQueriesOfBlock + kAttendWarps);
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
