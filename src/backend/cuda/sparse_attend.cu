// Bounded by reading the selected keys and values, once for all query heads that share them. The
// list of what a row sees is cut into pieces of kPiece, wherever the row stands in a window; a
// block of threads attends to one piece for one key head, and what it finds (largest score, sum of
// weights, weighted values) is put together in the order of the pieces.
#include <algorithm>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/piece.cuh"
#include "backend/cuda/sparse.cuh"

namespace strata::cuda {
namespace {

constexpr int kThreads = kPieceThreads;

// Pieces of the longest list.
__host__ __device__ int pieces_of(const op::SparseAttention& args) {
    const std::int64_t ratio = args.shape.ratio;
    const std::int64_t longest =
        min((args.shape.blocks_kept + std::int64_t{1}) * ratio - 1, args.cache.context);
    return static_cast<int>((longest + kPiece - 1) / kPiece);
}

// What the pieces of some rows leave, for query head after query head of each row and piece.
struct Partial {
    float* largest;  // [rows, pieces, H]
    float* sum;      // [rows, pieces, H]
    float* out;      // [rows, pieces, H, d]
    int pieces;
    int heads;
    int head_dim;

    __device__ std::int64_t at(std::int64_t row, int piece, int head) const {
        return (row * pieces + piece) * heads + head;
    }
};

Partial partial_of(const SparseRows& rows) {
    const op::AttentionShape& shape = rows.args.shape;
    Partial partial{};
    partial.pieces = pieces_of(rows.args);
    partial.heads = shape.heads;
    partial.head_dim = shape.head_dim;
    const std::int64_t each =
        std::min(kSparseRows, rows.args.x.rows) * partial.pieces * shape.heads;
    partial.out = rows.partial;
    partial.largest = partial.out + each * shape.head_dim;
    partial.sum = partial.largest + each;
    return partial;
}

// Any shape: block (piece, key head, row).
template <typename Cache>
__global__ void __launch_bounds__(kThreads)
    attend_piece(SparseRows rows, std::int64_t first, Partial partial) {
    follow_earlier_kernels();
    __shared__ int positions[kPiece];
    const op::AttentionShape& shape = rows.args.shape;
    const int group = shape.heads / shape.kv_heads;
    const int d = shape.head_dim;
    const auto piece = static_cast<int>(blockIdx.x);
    const auto g = static_cast<int>(blockIdx.y);
    const std::int64_t t = first + blockIdx.z;
    const Seen seen(rows, t);
    const int count = min(kPiece, seen.count() - piece * kPiece);
    if (count <= 0) return;
    const auto thread = static_cast<int>(threadIdx.x);
    auto* scores = reinterpret_cast<float*>(shared_bytes());
    if (thread < count) positions[thread] = seen.at(piece * kPiece + thread);
    __syncthreads();
    const auto head_of = [&](const void* cache, int i) {
        return Cache::head(cache, shape.kv_heads, d, positions[i], g);
    };
    for (int pair = thread; pair < kPiece * group; pair += kThreads) {
        const int i = pair / group;
        float sum = -INFINITY;
        if (i < count) {
            const auto key = head_of(rows.args.cache.keys, i);
            const float* query = rows.query.row(t) + (g * group + pair % group) * 2 * d;
            sum = 0.0f;
            for (int c = 0; c < d; ++c) sum = __fmaf_rn(query[c], Cache::value(key, c), sum);
        }
        scores[pair] = sum;
    }
    __syncthreads();
    const std::int64_t at = partial.at(blockIdx.z, piece, g * group);
    weigh(scores, group, group, 1.0f / sqrtf(static_cast<float>(d)), partial.largest + at,
          partial.sum + at);
    __syncthreads();
    for (int i = thread; i < group * d; i += kThreads) {
        float sum = 0.0f;
        for (int e = 0; e < count; ++e) {
            const auto value = head_of(rows.args.cache.values, e);
            sum = __fmaf_rn(scores[e * group + i / d], Cache::value(value, i % d), sum);
        }
        partial.out[at * d + i] = sum;
    }
}

// Heads of kDim, kGroup of them a key head, both for published models.
template <typename Cache, int kDim, int kGroup>
__global__ void __launch_bounds__(kThreads)
    attend_held(SparseRows rows, std::int64_t first, Partial partial) {
    follow_earlier_kernels();
    __shared__ int positions[kPiece];
    alignas(16) __shared__ float queries[kGroup * kDim];
    alignas(16) __shared__ float scores[kPiece * kGroup];
    const auto piece = static_cast<int>(blockIdx.x);
    const auto g = static_cast<int>(blockIdx.y);
    const std::int64_t t = first + blockIdx.z;
    const Seen seen(rows, t);
    const int count = min(kPiece, seen.count() - piece * kPiece);
    if (count <= 0) return;
    const auto thread = static_cast<int>(threadIdx.x);
    // Past the end the last row stands in, with a weight of zero.
    if (thread < kPiece) positions[thread] = seen.at(piece * kPiece + min(thread, count - 1));
    const float* query = rows.query.row(t) + std::int64_t{g} * kGroup * 2 * kDim;
    for (int i = thread; i < kGroup * kDim; i += kThreads) {
        queries[i / kDim * kDim + eight_at(i % kDim, kDim / kEight)] =
            query[i / kDim * 2 * kDim + i % kDim];
    }
    __syncthreads();
    HeldPiece<Cache, kDim, kGroup> held;
    held.load(rows.args.cache.keys, rows.args.cache.values, rows.args.shape.kv_heads, g, positions);
    held.score(
        queries, [&](int e, int) { return e < count; }, scores);
    __syncthreads();
    const std::int64_t at = partial.at(blockIdx.z, piece, g * kGroup);
    weigh(scores, kGroup, kGroup, 1.0f / sqrtf(static_cast<float>(kDim)), partial.largest + at,
          partial.sum + at);
    __syncthreads();
    held.add_values(scores, kGroup, partial.out + at * kDim);
}

constexpr int kMergeThreads = 256;

// attended of one head of one row: block (head, row).
__global__ void __launch_bounds__(kMergeThreads)
    merge_pieces(SparseRows rows, std::int64_t first, Partial partial) {
    follow_earlier_kernels();
    const auto h = static_cast<int>(blockIdx.x);
    const std::int64_t t = first + blockIdx.y;
    const int d = partial.head_dim;
    const int pieces = (Seen(rows, t).count() + kPiece - 1) / kPiece;
    auto* factors = reinterpret_cast<float*>(shared_bytes());
    float largest = -INFINITY;
    for (int i = 0; i < pieces; ++i) {
        const float other = partial.largest[partial.at(blockIdx.y, i, h)];
        largest = other > largest || other != other ? other : largest;
    }
    for (int i = static_cast<int>(threadIdx.x); i < pieces; i += kMergeThreads) {
        factors[i] = expf(partial.largest[partial.at(blockIdx.y, i, h)] - largest);
    }
    __syncthreads();
    const float* gate = rows.query.row(t) + std::int64_t{h} * 2 * d + d;
    for (int c = static_cast<int>(threadIdx.x); c < d; c += kMergeThreads) {
        float all = 0.0f;
        float sum = 0.0f;
#pragma unroll 4
        for (int i = 0; i < pieces; ++i) {
            const std::int64_t at = partial.at(blockIdx.y, i, h);
            all = __fmaf_rn(factors[i], partial.sum[at], all);
            sum = __fmaf_rn(factors[i], partial.out[at * d + c], sum);
        }
        rows.attended.row(t)[h * d + c] = sum / all * sigmoid(gate[c]);
    }
}

}  // namespace

std::int64_t attend_scratch(const op::SparseAttention& args) {
    return std::min(kSparseRows, args.x.rows) * pieces_of(args) * args.shape.heads *
           (args.shape.head_dim + std::int64_t{2});
}

void attend(Queue& queue, const SparseRows& rows, std::int64_t first, std::int64_t count) {
    const op::AttentionShape& shape = rows.args.shape;
    const op::AttentionCache& cache = rows.args.cache;
    const Partial partial = partial_of(rows);
    const int group = shape.heads / shape.kv_heads;
    const dim3 blocks(static_cast<unsigned>(partial.pieces), static_cast<unsigned>(shape.kv_heads),
                      static_cast<unsigned>(count));
    const bool held = reads_as_eights(cache.keys) && reads_as_eights(cache.values) &&
                      shape.head_dim == 256 && group == 12;
    with_cache(cache.type, [&](auto type) {
        using Cache = decltype(type);
        if (held) {
            launch_dependent(queue, {blocks, kThreads}, attend_held<Cache, 256, 12>, rows, first,
                             partial);
        } else {
            const std::size_t bytes = static_cast<std::size_t>(kPiece * group) * sizeof(float);
            launch_dependent(queue, {blocks, kThreads, bytes}, attend_piece<Cache>, rows, first,
                             partial);
        }
    });
    launch_dependent(queue,
                     {dim3(static_cast<unsigned>(shape.heads), static_cast<unsigned>(count)),
                      kMergeThreads, static_cast<std::size_t>(partial.pieces) * sizeof(float)},
                     merge_pieces, rows, first, partial);
}

}  // namespace strata::cuda
