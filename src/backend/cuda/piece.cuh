// Attention over a piece of a cache: kPiece entries of one key head by some queries that share it.
#pragma once

#include <type_traits>

#include "backend/cuda/cache.cuh"
#include "backend/cuda/eight.cuh"
#include "backend/cuda/intrinsics.cuh"

namespace strata::cuda {

inline constexpr int kPiece = kWarp;  // softmax takes a lane an entry
inline constexpr int kPieceThreads = 128;

// Turns the scores of `queries` queries, entry e's of query q at e * stride + q, into weights, and
// notes the largest score and the sum of the weights of each query. Scores of -infinity weigh
// nothing, be they all.
__device__ inline void weigh(float* scores, int stride, int queries, float scale, float* largest,
                             float* sums) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (int q = static_cast<int>(threadIdx.x) / kWarp; q < queries; q += kPieceThreads / kWarp) {
        const float score = scores[lane * stride + q] * scale;
        const float most = warp_max(score);
        const float weight = most == -INFINITY ? 0.0f : expf(score - most);
        scores[lane * stride + q] = weight;
        const float sum = warp_sum(weight);
        if (lane != 0) continue;
        largest[q] = most;
        sums[q] = sum;
    }
}

// Some dimensions of all values of a piece, from kOwn * threadIdx.x on: a thread's.
template <typename Cache, int kOwn>
class PieceValues {
  public:
    // Entry e of the piece is row rows[e].
    __device__ void load(const void* cache, int kv_heads, int dim, int g, const int* rows) {
#pragma unroll
        for (int e = 0; e < kPiece; ++e) {
            values_[e].load(Cache::head(cache, kv_heads, dim, rows[e], g),
                            kOwn * static_cast<int>(threadIdx.x));
        }
    }
    // Makes the values of entries that hold nothing zeros, whatever their memory has.
    template <typename Empty>
    __device__ void clear(Empty empty) {
#pragma unroll
        for (int e = 0; e < kPiece; ++e) {
            if (empty(e)) values_[e] = Own{};
        }
    }
    // Of entry e; all lanes of a warp call it.
    __device__ void unpack(int e, float (&values)[kOwn]) const { values_[e].unpack(values); }

  private:
    using Own = std::conditional_t<kOwn == 2, typename Cache::Two, typename Cache::One>;
    Own values_[kPiece];
};

// A lane keeps the scales of one entry for its warp, whose dimensions have kOwn of them.
template <int kOwn>
class PieceValues<CacheQ8, kOwn> {
  public:
    __device__ void load(const void* cache, int kv_heads, int dim, int g, const int* rows) {
        const auto thread = static_cast<int>(threadIdx.x);
        const auto* scales = CacheQ8::head(cache, kv_heads, dim, rows[thread % kWarp], g).scales +
                             thread / kWarp * kOwn;
        scales_ = scales[0];
        if (kOwn == 2) scales_ |= static_cast<unsigned>(scales[kOwn - 1]) << 16;
#pragma unroll
        for (int e = 0; e < kPiece; ++e) {
            const auto head = CacheQ8::head(cache, kv_heads, dim, rows[e], g);
            values_[e] = *reinterpret_cast<const Own*>(head.values + kOwn * thread);
        }
    }
    template <typename Empty>
    __device__ void clear(Empty empty) {
        if (empty(static_cast<int>(threadIdx.x) % kWarp)) scales_ = 0;
    }
    __device__ void unpack(int e, float (&values)[kOwn]) const {
        const unsigned both = __shfl_sync(kAllLanes, scales_, e);
        const bool second = kOwn == 2 && threadIdx.x % kWarp >= kWarp / 2;
        const float scale = half_to_float(static_cast<std::uint16_t>(second ? both >> 16 : both));
#pragma unroll
        for (int i = 0; i < kOwn; ++i) values[i] = scale * CacheQ8::signed_byte(values_[e], i);
    }

  private:
    static_assert(kPiece == kWarp && CacheQ8::kGroup == kWarp && kOwn <= 2);
    using Own = std::conditional_t<kOwn == 2, std::uint16_t, std::uint8_t>;
    Own values_[kPiece];
    unsigned scales_;
};

// Heads of kDim and up to kQueries queries at a time. Keys and values of the piece are asked for at
// once and wait in registers: lanes of eight take a key, a thread some dimensions of all values.
template <typename Cache, int kDim, int kQueries>
struct HeldPiece {
    static constexpr int kWarps = kPieceThreads / kWarp;
    static constexpr int kLanes = 8;                                  // of a key
    static constexpr int kEights = kDim / kLanes / kEight;            // of a key, a lane
    static constexpr int kSets = kPiece / kWarps / (kWarp / kLanes);  // keys of a lane
    static constexpr int kOwn = kDim / kPieceThreads;                 // dimensions of a thread
    static_assert(kOwn * kPieceThreads == kDim && kOwn <= 2);

    typename Cache::Eight keys[kSets][kEights];
    PieceValues<Cache, kOwn> values;

    __device__ static int lane_part() { return static_cast<int>(threadIdx.x) % kLanes; }
    // The entry of the piece that set `set` of this thread works on.
    __device__ static int entry(int set) {
        return static_cast<int>(threadIdx.x) / kWarp * (kPiece / kWarps) + set * (kWarp / kLanes) +
               static_cast<int>(threadIdx.x) % kWarp / kLanes;
    }

    // Entry e of the piece is row rows[e] of the caches of [kv_heads, kDim]; all can be read.
    __device__ void load(const void* key_cache, const void* value_cache, int kv_heads, int g,
                         const int* rows) {
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
            const auto key = Cache::head(key_cache, kv_heads, kDim, rows[entry(set)], g);
#pragma unroll
            for (int j = 0; j < kEights; ++j) {
                keys[set][j].load(key, kEight * (lane_part() + j * kLanes));
            }
        }
        values.load(value_cache, kv_heads, kDim, g, rows);
    }

    // scores[entry * kQueries + query] = query . key where sees(entry, query), else -infinity.
    // Queries lie as eight_at says.
    template <typename Sees>
    __device__ void score(const float* queries, Sees sees, float* scores) const {
        float sums[kQueries][kSets] = {};
#pragma unroll
        for (int j = 0; j < kEights; ++j) {
            float key[kSets][kEight];
#pragma unroll
            for (int set = 0; set < kSets; ++set) keys[set][j].unpack(key[set]);
#pragma unroll
            for (int q = 0; q < kQueries; ++q) {
#pragma unroll
                for (int set = 0; set < kSets; ++set) {
                    sums[q][set] = add_eight(key[set], queries + q * kDim, lane_part() + j * kLanes,
                                             kDim / kEight, sums[q][set]);
                }
            }
        }
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
#pragma unroll
            for (int q = 0; q < kQueries; ++q) {
                float sum = sums[q][set];
#pragma unroll
                for (int by = kLanes / 2; by > 0; by /= 2) {
                    sum += __shfl_xor_sync(kAllLanes, sum, by);
                }
                if (lane_part() == q % kLanes) {
                    scores[entry(set) * kQueries + q] = sees(entry(set), q) ? sum : -INFINITY;
                }
            }
        }
    }

    // sums[query] += sum over the entries of weight * value, of the thread's dimensions.
    __device__ void sum_values(const float* weights, float (&sums)[kQueries][kOwn]) const {
#pragma unroll
        for (int e = 0; e < kPiece; ++e) {
            float value[kOwn];
            values.unpack(e, value);
#pragma unroll
            for (int q = 0; q < kQueries; ++q) {
                const float weight = weights[e * kQueries + q];
#pragma unroll
                for (int i = 0; i < kOwn; ++i) {
                    sums[q][i] = __fmaf_rn(weight, value[i], sums[q][i]);
                }
            }
        }
    }

    // out[query, dimension] = those sums, of the first `count` queries.
    __device__ void add_values(const float* weights, int count, float* out) const {
        float sums[kQueries][kOwn] = {};
        sum_values(weights, sums);
#pragma unroll
        for (int q = 0; q < kQueries; ++q) {
            if (q >= count) break;
#pragma unroll
            for (int i = 0; i < kOwn; ++i) out[q * kDim + kOwn * threadIdx.x + i] = sums[q][i];
        }
    }
};

// Whether rows of a cache can be read as eights, head_dim of them being a multiple of eight.
inline bool reads_as_eights(const void* cache) {
    return reinterpret_cast<std::uintptr_t>(cache) % 16 == 0;
}

}  // namespace strata::cuda
