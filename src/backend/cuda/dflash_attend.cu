// Bounded by reading the cells: once for the queries of all rows that share a key head. The
// positions that some row may see are cut into pieces; a block of threads attends to one piece for
// one key head. The rows of the block itself, which are few, join where the pieces are put
// together.
#include <algorithm>

#include "backend/cuda/dflash.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/piece.cuh"

namespace strata::cuda {
namespace {

constexpr int kTogether = 16;  // queries that go through a piece at a time

struct Attend {
    op::DflashShape shape;
    op::DflashCells cells;
    std::int64_t first;  // position of row 0, or where first_at is given the largest
    const std::int64_t* first_at;
    std::int64_t window;  // 0: all
    DflashRows rows;
    int count;       // B
    int group;       // query heads of a key head
    int pieces;      // of the longest list
    float* largest;  // [G, pieces, queries], a query (row, head of the group)
    float* sum;      // [G, pieces, queries]
    float* values;   // [G, pieces, queries, d]
    MatrixView<float> out;

    // Brings `first` to what it is now. Each kernel begins with it.
    __device__ void look_up() { first = first_of(*this); }
    __device__ int queries() const { return count * group; }
    __device__ std::int64_t at(int g, int piece, int query) const {
        return (std::int64_t{g} * pieces + piece) * queries() + query;
    }
    __device__ const float* query(int g, int q) const {
        return rows.query.row(q / group) + (g * group + q % group) * shape.head_dim;
    }
    // The position of the first cell that a row may see: of what the ring can hold, what row 0,
    // which sees the furthest back, can see.
    __device__ std::int64_t lowest() const {
        const std::int64_t held = max(std::int64_t{0}, first - cells.slots);
        return window > 0 ? max(held, first - window + 1) : held;
    }
    __device__ int pieces_used() const {
        return static_cast<int>((first - lowest() + kPiece - 1) / kPiece);
    }
    // Whether row i sees the cell of `position`; -1 is none's.
    __device__ bool sees(int i, int position) const {
        return position >= 0 && (window == 0 || first + i - position < window);
    }
    // The slot of entry e of a piece, and the position of its cell: -1 where it holds another.
    __device__ void find(int piece, int e, int* slot, int* position) const {
        const std::int64_t p = lowest() + piece * kPiece + e;
        *slot = static_cast<int>(min(p, first - 1) % cells.slots);
        *position = p < first && cells.position[*slot] == p ? static_cast<int>(p) : -1;
    }
};

// Any shape: block (piece, key head).
template <typename Cache>
__global__ void __launch_bounds__(kPieceThreads) attend_cells(Attend attend) {
    follow_earlier_kernels();
    attend.look_up();
    __shared__ int slots[kPiece];
    __shared__ int positions[kPiece];
    const auto piece = static_cast<int>(blockIdx.x);
    const auto g = static_cast<int>(blockIdx.y);
    if (piece >= attend.pieces_used()) return;
    const int d = attend.shape.head_dim;
    const int queries = attend.queries();
    const auto thread = static_cast<int>(threadIdx.x);
    auto* scores = reinterpret_cast<float*>(shared_bytes());
    if (thread < kPiece) attend.find(piece, thread, &slots[thread], &positions[thread]);
    __syncthreads();
    const auto cell = [&](const void* cache, int e) {
        return Cache::head(cache, attend.shape.kv_heads, d, slots[e], g);
    };
    for (int pair = thread; pair < kPiece * queries; pair += kPieceThreads) {
        const int e = pair / queries;
        const int q = pair % queries;
        float sum = -INFINITY;
        if (attend.sees(q / attend.group, positions[e])) {
            const auto key = cell(attend.cells.keys, e);
            const float* query = attend.query(g, q);
            sum = 0.0f;
            for (int c = 0; c < d; ++c) sum = __fmaf_rn(query[c], Cache::value(key, c), sum);
        }
        scores[pair] = sum;
    }
    __syncthreads();
    const std::int64_t at = attend.at(g, piece, 0);
    weigh(scores, queries, queries, 1.0f / sqrtf(static_cast<float>(d)), attend.largest + at,
          attend.sum + at);
    __syncthreads();
    for (int i = thread; i < queries * d; i += kPieceThreads) {
        float sum = 0.0f;
        for (int e = 0; e < kPiece; ++e) {
            const float weight = scores[e * queries + i / d];
            if (weight == 0.0f) continue;  // the cell may hold anything
            sum = __fmaf_rn(weight, Cache::value(cell(attend.cells.values, e), i % d), sum);
        }
        attend.values[at * d + i] = sum;
    }
}

// Heads of kDim, that of published models.
template <typename Cache, int kDim>
__global__ void __launch_bounds__(kPieceThreads) attend_held_cells(Attend attend) {
    follow_earlier_kernels();
    attend.look_up();
    __shared__ int slots[kPiece];
    __shared__ int positions[kPiece];
    alignas(16) __shared__ float queries[kTogether * kDim];
    alignas(16) __shared__ float scores[kPiece * kTogether];
    const auto piece = static_cast<int>(blockIdx.x);
    const auto g = static_cast<int>(blockIdx.y);
    if (piece >= attend.pieces_used()) return;
    const auto thread = static_cast<int>(threadIdx.x);
    if (thread < kPiece) attend.find(piece, thread, &slots[thread], &positions[thread]);
    __syncthreads();
    HeldPiece<Cache, kDim, kTogether> held;
    held.load(attend.cells.keys, attend.cells.values, attend.shape.kv_heads, g, slots);
    held.values.clear([&](int e) { return positions[e] < 0; });
#pragma unroll 1
    for (int from = 0; from < attend.queries(); from += kTogether) {
        const int count = min(kTogether, attend.queries() - from);
        for (int i = thread; i < kTogether * kDim; i += kPieceThreads) {
            const int q = i / kDim;
            queries[q * kDim + eight_at(i % kDim, kDim / kEight)] =
                q < count ? attend.query(g, from + q)[i % kDim] : 0.0f;
        }
        __syncthreads();
        held.score(
            queries,
            [&](int e, int q) { return attend.sees((from + q) / attend.group, positions[e]); },
            scores);
        __syncthreads();
        const std::int64_t at = attend.at(g, piece, from);
        weigh(scores, kTogether, count, 1.0f / sqrtf(static_cast<float>(kDim)), attend.largest + at,
              attend.sum + at);
        __syncthreads();
        held.add_values(scores, count, attend.values + at * kDim);
        __syncthreads();
    }
}

// out of one head of one row, from the pieces and the rows of the block: block (head, row). A warp
// takes a row of the block at a time.
__global__ void __launch_bounds__(kPieceThreads) join_block(Attend attend) {
    follow_earlier_kernels();
    attend.look_up();
    const auto h = static_cast<int>(blockIdx.x);
    const auto i = static_cast<int>(blockIdx.y);
    const int g = h / attend.group;
    const int q = i * attend.group + h % attend.group;
    const int d = attend.shape.head_dim;
    const auto thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kWarp;
    const int pieces = attend.pieces_used();
    const int sources = pieces + attend.count;
    auto* weights = reinterpret_cast<float*>(shared_bytes());  // [sources]: largest scores first
    const float* query = attend.query(g, q);
    const float scale = 1.0f / sqrtf(static_cast<float>(d));
    for (int j = thread / kWarp; j < attend.count; j += kPieceThreads / kWarp) {
        float sum = 0.0f;
        for (int c = lane; c < d; c += kWarp) {
            sum = __fmaf_rn(query[c], attend.rows.key.row(j)[g * d + c], sum);
        }
        sum = warp_sum(sum);
        const bool sees = attend.window == 0 || (i > j ? i - j : j - i) < attend.window;
        if (lane == 0) weights[pieces + j] = sees ? sum * scale : -INFINITY;
    }
    for (int p = thread; p < pieces; p += kPieceThreads) {
        weights[p] = attend.largest[attend.at(g, p, q)];
    }
    __syncthreads();
    float largest = -INFINITY;
    for (int s = 0; s < sources; ++s) {
        largest = weights[s] > largest || weights[s] != weights[s] ? weights[s] : largest;
    }
    __syncthreads();
    for (int s = thread; s < sources; s += kPieceThreads) weights[s] = expf(weights[s] - largest);
    __syncthreads();
    for (int c = thread; c < d; c += kPieceThreads) {
        float all = 0.0f;
        float sum = 0.0f;
#pragma unroll 4
        for (int p = 0; p < pieces; ++p) {
            const std::int64_t at = attend.at(g, p, q);
            all = __fmaf_rn(weights[p], attend.sum[at], all);
            sum = __fmaf_rn(weights[p], attend.values[at * d + c], sum);
        }
        for (int j = 0; j < attend.count; ++j) {
            const float weight = weights[pieces + j];
            all += weight;
            sum = __fmaf_rn(weight, attend.rows.value.row(j)[g * d + c], sum);
        }
        attend.out.row(i)[h * d + c] = sum / all;
    }
}

template <typename Cache>
void launch_cells(Queue& queue, const Attend& attend) {
    const dim3 blocks(static_cast<unsigned>(attend.pieces),
                      static_cast<unsigned>(attend.shape.kv_heads));
    if (attend.shape.head_dim == 128 && reads_as_eights(attend.cells.keys) &&
        reads_as_eights(attend.cells.values)) {
        launch_dependent(queue, {blocks, kPieceThreads}, attend_held_cells<Cache, 128>, attend);
    } else {
        const std::size_t bytes =
            static_cast<std::size_t>(kPiece * attend.count * attend.group) * sizeof(float);
        launch_dependent(queue, {blocks, kPieceThreads, bytes}, attend_cells<Cache>, attend);
    }
}

}  // namespace

void dflash_attend(Queue& queue, const op::DflashBlock& args, const op::DflashLayer& layer,
                   const DflashRows& rows, MatrixView<float> out) {
    Attend attend{};
    attend.shape = args.shape;
    attend.cells = layer.cells;
    attend.first = args.first;
    attend.first_at = args.first_at;
    attend.window = layer.window;
    attend.rows = rows;
    attend.count = static_cast<int>(out.rows);
    attend.group = args.shape.heads / args.shape.kv_heads;
    // With a window the grid does not depend on where the block stands.
    const std::int64_t longest =
        std::min(layer.cells.slots, layer.window > 0 ? layer.window - 1 : args.first);
    attend.pieces = static_cast<int>((longest + kPiece - 1) / kPiece);
    attend.out = out;
    const std::int64_t each =
        std::int64_t{args.shape.kv_heads} * attend.pieces * attend.count * attend.group;
    attend.largest = queue.take<float>(each);
    attend.sum = queue.take<float>(each);
    attend.values = queue.take<float>(each * args.shape.head_dim);
    if (attend.pieces > 0) {
        with_cache(layer.cells.type,
                   [&](auto type) { launch_cells<decltype(type)>(queue, attend); });
    }
    launch_dependent(
        queue,
        {dim3(static_cast<unsigned>(args.shape.heads), static_cast<unsigned>(attend.count)),
         kPieceThreads, static_cast<std::size_t>(attend.pieces + attend.count) * sizeof(float)},
        join_block, attend);
}

}  // namespace strata::cuda
