// Bounded by reading the block keys: once for all rows of a window. The selection reads the scores
// five times, from the second cache level, by one block of threads a row.
//
// Scores are not negative, so their bits order them: the bits of the least score that is kept are
// found from the top, some at a time, by counting how many scores have each value there. Counts are
// exact, so that the choice depends on nothing else.
#include <algorithm>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/sparse.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr int kScoreThreads = 256;
constexpr int kParts = 8;                      // lanes that share a block key
constexpr int kSets = 4;                       // block keys that a lane holds its parts of
constexpr int kTile = kWarp / kParts * kSets;  // block keys of a warp
constexpr int kTripsMin = 2;                   // tiles that a warp is worth starting for

// score += max(0, the sum over the lanes of a key); NaN counts as 0.
__device__ void add_positive(float sum, float* score) {
    for (int by = kParts / 2; by > 0; by /= 2) sum += __shfl_xor_sync(kAllLanes, sum, by);
    *score += sum > 0.0f ? sum : 0.0f;
}

// Block keys in registers, for the dimensions of published models.
template <int kDim, int kHeads>
struct HeldKeys {
    static constexpr int kFours = kDim / kParts / 4;
    float4 keys[kSets][kFours];

    // Of the set's block `block`; zeros from `end` on.
    __device__ void load(int set, const float* block_keys, std::int64_t block, std::int64_t end,
                         int, int part) {
#pragma unroll
        for (int j = 0; j < kFours; ++j) {
            keys[set][j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (block < end) {
                keys[set][j] = *reinterpret_cast<const float4*>(block_keys + block * kDim +
                                                                4 * (part + j * kParts));
            }
        }
    }
    // scores[set] = sum over heads of max(0, query . key), in all lanes of a key.
    __device__ void score(const float* query, const op::AttentionShape&, int part,
                          float* scores) const {
        float sums[kHeads][kSets] = {};
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
#pragma unroll
            for (int j = 0; j < kFours; ++j) {
                const float4 q =
                    *reinterpret_cast<const float4*>(query + h * kDim + 4 * (part + j * kParts));
#pragma unroll
                for (int set = 0; set < kSets; ++set) {
                    float& sum = sums[h][set];
                    sum = __fmaf_rn(q.x, keys[set][j].x, sum);
                    sum = __fmaf_rn(q.y, keys[set][j].y, sum);
                    sum = __fmaf_rn(q.z, keys[set][j].z, sum);
                    sum = __fmaf_rn(q.w, keys[set][j].w, sum);
                }
            }
        }
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
            scores[set] = 0.0f;
#pragma unroll
            for (int h = 0; h < kHeads; ++h) add_positive(sums[h][set], &scores[set]);
        }
    }
};

// Block keys of any shape, read again for every row and head.
struct ReadKeys {
    const float* keys[kSets];

    __device__ void load(int set, const float* block_keys, std::int64_t block, std::int64_t end,
                         int dim, int) {
        keys[set] = block_keys + min(block, end - 1) * dim;
    }
    __device__ void score(const float* query, const op::AttentionShape& shape, int part,
                          float* scores) const {
        for (int set = 0; set < kSets; ++set) {
            scores[set] = 0.0f;
            for (int h = 0; h < shape.index_heads; ++h) {
                float sum = 0.0f;
                for (int i = part; i < shape.index_dim; i += kParts) {
                    sum = __fmaf_rn(query[h * shape.index_dim + i], keys[set][i], sum);
                }
                add_positive(sum, &scores[set]);
            }
        }
    }
};

// Values from one row of scores to the next.
__host__ __device__ std::int64_t score_stride(const op::SparseAttention& args) {
    return args.cache.context / args.shape.ratio;
}

// Scores of every block that rows first .. first+count-1 see, of the rows that see more than B.
template <typename Keys>
__global__ void __launch_bounds__(kScoreThreads, 2)
    score_blocks(SparseRows rows, std::int64_t first, int count) {
    follow_earlier_kernels();
    const op::SparseAttention& args = rows.args;
    const op::AttentionShape& shape = args.shape;
    const auto width = static_cast<int>(rows.index_query.cols);
    auto* queries = reinterpret_cast<float*>(shared_bytes());
    for (int i = static_cast<int>(threadIdx.x); i < count * width; i += kScoreThreads) {
        queries[i] = rows.index_query.row(first)[i];
    }
    __syncthreads();
    const int part = static_cast<int>(threadIdx.x) % kParts;
    const int key = static_cast<int>(threadIdx.x) % kWarp / kParts;
    const std::int64_t end = Seen(rows, first + count - 1).blocks;
    const std::int64_t warps = std::int64_t{gridDim.x} * (kScoreThreads / kWarp);
    const std::int64_t warp =
        std::int64_t{blockIdx.x} * (kScoreThreads / kWarp) + threadIdx.x / kWarp;
    for (std::int64_t tile = warp * kTile; tile < end; tile += warps * kTile) {
        Keys keys;
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
            keys.load(set, args.cache.block_keys, tile + set * (kWarp / kParts) + key, end,
                      shape.index_dim, part);
        }
        for (int i = 0; i < count; ++i) {
            float scores[kSets];
            keys.score(queries + i * width, shape, part, scores);
            const Seen seen(rows, first + i);
            if (part != 0 || seen.all()) continue;
#pragma unroll
            for (int set = 0; set < kSets; ++set) {
                const std::int64_t block = tile + set * (kWarp / kParts) + key;
                if (block < seen.blocks) rows.scores[i * score_stride(args) + block] = scores[set];
            }
        }
    }
}

constexpr int kSelectThreadsMax = 1024;
constexpr int kDigitBits = 11;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kScoreBits = 31;  // without the sign

// The search for the least score that is kept, in shared memory.
struct Search {
    int counts[kDigits];
    unsigned prefix;  // the bits that are found
    int wanted;       // scores to keep of those that begin with them
};

// Counts, for the scores that begin with the prefix, the next `bits` bits below `shift + bits`.
// Zeros, of which there can be many, are counted a warp at a time.
__device__ void count_digits(const float* scores, std::int64_t blocks, int shift, int bits,
                             Search* search) {
    const unsigned prefix = search->prefix;
    const auto threads = static_cast<int>(blockDim.x);
    int zeros = 0;
    for (std::int64_t b = threadIdx.x; b < blocks; b += threads) {
        const unsigned score = __float_as_uint(scores[b]);
        if (score == 0) {
            ++zeros;
        } else if (shift + bits == kScoreBits || score >> (shift + bits) == prefix) {
            atomicAdd(&search->counts[score >> shift & ((1u << bits) - 1)], 1);
        }
    }
    zeros = warp_sum(zeros);
    if (threadIdx.x % kWarp == 0 && zeros > 0 && prefix == 0) atomicAdd(&search->counts[0], zeros);
}

// Goes down from the largest digit to the one with the last score that is kept; by one warp.
__device__ void take_digit(int bits, Search* search) {
    const int lane = static_cast<int>(threadIdx.x);
    const int each = (1 << bits) / kWarp;
    const int high = (kWarp - lane) * each - 1;  // lane 0 has the largest digits
    int sum = 0;
    for (int i = 0; i < each; ++i) sum += search->counts[high - i];
    int before = sum;  // in lanes up to this one
    for (int by = 1; by < kWarp; by *= 2) {
        const int other = __shfl_up_sync(kAllLanes, before, static_cast<unsigned>(by));
        if (lane >= by) before += other;
    }
    before -= sum;
    const int wanted = search->wanted;
    __syncwarp();
    if (before >= wanted || before + sum < wanted) return;
    int digit = high;
    for (; before + search->counts[digit] < wanted; --digit) before += search->counts[digit];
    search->prefix = search->prefix << bits | static_cast<unsigned>(digit);
    search->wanted = wanted - before;
}

// Writes the blocks with scores above `least` and the first `equal` of those with it, ascending: a
// warp takes a piece of the scores, first to count, then to write.
__device__ void write_chosen(const float* scores, std::int64_t blocks, unsigned least, int equal,
                             std::int32_t* chosen) {
    __shared__ int above_of[kSelectThreadsMax / kWarp];
    __shared__ int equal_of[kSelectThreadsMax / kWarp];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const std::int64_t piece = (blocks + blockDim.x - 1) / blockDim.x * kWarp;
    const std::int64_t begin = warp * piece;
    const std::int64_t end = min(begin + piece, blocks);
    int aboves = 0;
    int equals = 0;
    for (std::int64_t b = begin + lane; b < end; b += kWarp) {
        const unsigned score = __float_as_uint(scores[b]);
        aboves += score > least ? 1 : 0;
        equals += score == least ? 1 : 0;
    }
    aboves = warp_sum(aboves);
    equals = warp_sum(equals);
    if (lane == 0) {
        above_of[warp] = aboves;
        equal_of[warp] = equals;
    }
    __syncthreads();
    int above = 0;  // before this place
    int same = 0;
    for (int w = 0; w < warp; ++w) {
        above += above_of[w];
        same += equal_of[w];
    }
    const unsigned below = (1u << lane) - 1;
    for (std::int64_t tile = begin; tile < end; tile += kWarp) {
        const std::int64_t b = tile + lane;
        const unsigned score = b < end ? __float_as_uint(scores[b]) : 0u;
        const bool is_above = b < end && score > least;
        const bool is_same = b < end && score == least;
        const unsigned aboves_here = __ballot_sync(kAllLanes, is_above);
        const unsigned same_here = __ballot_sync(kAllLanes, is_same);
        const int rank = same + __popc(same_here & below);
        const int at = above + __popc(aboves_here & below) + min(rank, equal);
        if (is_above || (is_same && rank < equal)) chosen[at] = static_cast<std::int32_t>(b);
        above += __popc(aboves_here);
        same += __popc(same_here);
    }
}

// The blocks that row first + blockIdx.x keeps.
__global__ void __launch_bounds__(kSelectThreadsMax)
    choose_row(SparseRows rows, std::int64_t first) {
    follow_earlier_kernels();
    __shared__ Search search;
    const std::int64_t t = first + blockIdx.x;
    const Seen seen(rows, t);
    if (seen.all()) return;
    const float* scores = rows.scores + blockIdx.x * score_stride(rows.args);
    if (threadIdx.x == 0) {
        search.prefix = 0;
        search.wanted = rows.args.shape.blocks_kept;
    }
    for (int top = kScoreBits; top > 0; top -= min(kDigitBits, top)) {
        const int bits = min(kDigitBits, top);
        for (int i = static_cast<int>(threadIdx.x); i < kDigits;
             i += static_cast<int>(blockDim.x)) {
            search.counts[i] = 0;
        }
        __syncthreads();
        count_digits(scores, seen.blocks, top - bits, bits, &search);
        __syncthreads();
        if (threadIdx.x < kWarp) take_digit(bits, &search);
        __syncthreads();
    }
    write_chosen(scores, seen.blocks, search.prefix, search.wanted,
                 rows.chosen + t * rows.args.shape.blocks_kept);
}

}  // namespace

std::int64_t select_scratch(const op::SparseAttention& args) {
    return std::min(kSparseRows, args.x.rows) * score_stride(args);
}

void select_blocks(Queue& queue, const SparseRows& rows, std::int64_t first, std::int64_t count) {
    const op::SparseAttention& args = rows.args;
    const op::AttentionShape& shape = args.shape;
    // Where the last row sees no more than B blocks, none does.
    if ((args.first + first + count) / shape.ratio <= shape.blocks_kept) return;
    const std::int64_t tiles = (score_stride(args) + kTile - 1) / kTile;
    const std::int64_t each = kTripsMin * kScoreThreads / kWarp;
    const auto blocks = static_cast<unsigned>(
        std::clamp<std::int64_t>((tiles + each - 1) / each, 1, 2 * queue.multiprocessors()));
    const std::size_t bytes =
        static_cast<std::size_t>(count * rows.index_query.cols) * sizeof(float);
    const bool held = shape.index_dim == 128 && shape.index_heads == 4 &&
                      reinterpret_cast<std::uintptr_t>(args.cache.block_keys) % 16 == 0;
    launch_dependent(queue, {dim3(blocks), kScoreThreads, bytes},
                     held ? score_blocks<HeldKeys<128, 4>> : score_blocks<ReadKeys>, rows, first,
                     static_cast<int>(count));
    choose_blocks(queue, rows, first, count);
}

void choose_blocks(Queue& queue, const SparseRows& rows, std::int64_t first, std::int64_t count) {
    const auto threads = static_cast<unsigned>(std::clamp<std::int64_t>(
        score_stride(rows.args) / 8 / kWarp * kWarp, 128, kSelectThreadsMax));
    launch_dependent(queue, {dim3(static_cast<unsigned>(count)), threads}, choose_row, rows, first);
}

}  // namespace strata::cuda
