// A block a row and key head: the query heads that share the key head are the rows of a tile, the
// keys and values that the row sees come through shared memory kKeys at a time. Four warps make
// the scores of eight keys each, then the sums of a quarter of the dimensions each. Bound by the
// second cache level, from which each row reads what it sees: 2 MB for 2,048 keys of 256.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/prompt_bring.cuh"
#include "backend/cuda/prompt_sparse.h"
#include "backend/cuda/sparse.cuh"
#include "backend/cuda/tensor_core.cuh"
#include "base/check.h"

namespace strata::cuda::prompt {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kKeys = 32;   // of a tile
constexpr int kHeads = 16;  // rows of a tile: those of a key head, then zeros
constexpr int kScoreStride = kKeys + 4;

template <int kDim>
struct Memory {
    static constexpr int kRowBytes = 2 * kDim;
    std::byte keys[2][kKeys * kRowBytes];
    std::byte values[2][kKeys * kRowBytes];
    std::byte queries[kHeads * kRowBytes];
    float scores[kHeads][kScoreStride];
};

// The row and key head of a block.
template <int kDim, typename Cache>
struct Attention {
    const SparseRows& rows;
    Memory<kDim>& memory;
    Seen seen;
    std::int64_t t;
    int key_head;
    int heads;  // that share it
    int lane;
    int warp;

    __device__ Attention(const SparseRows& rows_, Memory<kDim>& memory_, std::int64_t row)
        : rows(rows_),
          memory(memory_),
          seen(rows_, row),
          t(row),
          key_head(static_cast<int>(blockIdx.y)),
          heads(rows_.args.shape.heads / rows_.args.shape.kv_heads),
          lane(static_cast<int>(threadIdx.x) % kWarp),
          warp(static_cast<int>(threadIdx.x) / kWarp) {}

    __device__ const float* query(int head) const {
        return rows.query.row(t) + std::int64_t{key_head * heads + head} * 2 * kDim;
    }

    __device__ void round_queries() const {
        for (int i = static_cast<int>(threadIdx.x); i < kHeads * kDim / 2; i += kThreads) {
            const int head = i / (kDim / 2);
            const int c = i % (kDim / 2) * 2;
            std::uint32_t pair = 0;
            if (head < heads) pair = f16_pair(query(head)[c], query(head)[c + 1]);
            std::byte* piece = row_piece<kDim>(memory.queries, head, c / 8);
            *reinterpret_cast<std::uint32_t*>(piece + c % 8 * 2) = pair;
        }
    }

    __device__ void bring(int tile, int count) const {
        constexpr int kPieces = kDim / 8;
        const int piece = static_cast<int>(threadIdx.x) % kPieces;
#pragma unroll
        for (int row = static_cast<int>(threadIdx.x) / kPieces; row < kKeys;
             row += kThreads / kPieces) {
            const int i = tile * kKeys + row;
            const bool take = i < count;
            bring_pieces<kDim, Cache>(row_piece<kDim>(memory.keys[tile % 2], row, piece),
                                      row_piece<kDim>(memory.values[tile % 2], row, piece),
                                      rows.args, take ? seen.at(i) : 0, key_head, piece, take);
        }
        commit_copies();
    }

    // Scores of the warp's eight keys to shared memory.
    __device__ void score(int tile, const std::uint32_t (&q)[kDim / 16][4]) const {
        float sums[2][4] = {};
        const int key = 8 * warp + lane % 8;
#pragma unroll
        for (int c = 0; c < kDim / 32; ++c) {
            std::uint32_t k[4];
            load_tiles(k, row_piece<kDim>(memory.keys[tile % 2], key, 4 * c + lane / 8));
            add_tile_f16(sums[0], q[2 * c], k[0], k[1]);
            add_tile_f16(sums[1], q[2 * c + 1], k[2], k[3]);
        }
        const float scale = 1.0f / sqrtf(static_cast<float>(kDim));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            memory.scores[lane / 4 + i / 2 * 8][8 * warp + lane % 4 * 2 + i % 2] =
                (sums[0][i] + sums[1][i]) * scale;
        }
    }
};

// What a warp keeps of rows lane / 4 and 8 further: the softmax so far.
template <int kDim>
struct Sums {
    static constexpr int kEights = kDim / kWarps / 8;
    float out[kEights][4] = {};
    float largest[2] = {-INFINITY, -INFINITY};
    float weights[2] = {};

    // The weights of a tile of scores, of which `count` are keys, as fragments; sums scaled to the
    // largest score so far.
    __device__ void weigh(const float (&scores)[kHeads][kScoreStride], int lane, int count,
                          std::uint32_t (&p)[kKeys / 16][4]) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float v[kKeys / 16][4];
            float most = largest[half];
#pragma unroll
            for (int s = 0; s < kKeys / 16; ++s) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int key = 16 * s + lane % 4 * 2 + i % 2 + i / 2 * 8;
                    v[s][i] = key < count ? scores[lane / 4 + 8 * half][key] : -INFINITY;
                    most = fmaxf(most, v[s][i]);
                }
            }
            most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
            most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
            const float scale = __expf(largest[half] - most);
            largest[half] = most;
            float sum = 0.0f;
#pragma unroll
            for (int s = 0; s < kKeys / 16; ++s) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    v[s][i] = __expf(v[s][i] - most);
                    sum += v[s][i];
                }
                p[s][half] = f16_pair(v[s][0], v[s][1]);
                p[s][2 + half] = f16_pair(v[s][2], v[s][3]);
            }
            weights[half] = __fmaf_rn(weights[half], scale, sum);
#pragma unroll
            for (int j = 0; j < kEights; ++j) {
                out[j][2 * half] *= scale;
                out[j][2 * half + 1] *= scale;
            }
        }
    }

    __device__ void add(std::byte* values, int lane, int warp,
                        const std::uint32_t (&p)[kKeys / 16][4]) {
#pragma unroll
        for (int s = 0; s < kKeys / 16; ++s) {
#pragma unroll
            for (int j = 0; j < kEights; j += 2) {
                std::uint32_t v[4];
                const int row = 16 * s + lane / 8 % 2 * 8 + lane % 8;
                load_tiles_turned(v, row_piece<kDim>(values, row, warp * kEights + j + lane / 16));
                add_tile_f16(out[j], p[s], v[0], v[1]);
                add_tile_f16(out[j + 1], p[s], v[2], v[3]);
            }
        }
    }
};

template <int kDim, typename Cache>
__global__ void __launch_bounds__(kThreads)
    attend_rows(SparseRows rows, RoundedRows out, std::int64_t first) {
    if (!kPromptsRun) return;
    auto& memory = *reinterpret_cast<Memory<kDim>*>(shared_bytes());
    const Attention<kDim, Cache> own(rows, memory, first + blockIdx.x);
    const int count = own.seen.count();
    own.bring(0, count);
    own.round_queries();
    __syncthreads();
    std::uint32_t q[kDim / 16][4];
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
        load_tiles(q[k], row_piece<kDim>(memory.queries, own.lane % 16, 2 * k + own.lane / 16));
    }
    Sums<kDim> sums;
    for (int tile = 0; tile * kKeys < count; ++tile) {
        wait_copies<0>();
        __syncthreads();
        own.bring(tile + 1, count);  // where the tile before the last barrier was
        own.score(tile, q);
        __syncthreads();
        std::uint32_t p[kKeys / 16][4];
        sums.weigh(memory.scores, own.lane, count - tile * kKeys, p);
        sums.add(memory.values[tile % 2], own.lane, own.warp, p);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float all = sums.weights[half];
        all += __shfl_xor_sync(kAllLanes, all, 1);
        all += __shfl_xor_sync(kAllLanes, all, 2);
        const int head = own.lane / 4 + 8 * half;
        if (head >= own.heads) continue;
        const float* gate = own.query(head) + kDim;
        std::uint16_t* to = out.row(own.t) + std::int64_t{own.key_head * own.heads + head} * kDim;
#pragma unroll
        for (int j = 0; j < Sums<kDim>::kEights; ++j) {
            const int c = (own.warp * Sums<kDim>::kEights + j) * 8 + own.lane % 4 * 2;
            *reinterpret_cast<std::uint32_t*>(to + c) =
                bf16_pair(sums.out[j][2 * half] / all * sigmoid(gate[c]),
                          sums.out[j][2 * half + 1] / all * sigmoid(gate[c + 1]));
        }
    }
}

template <int kDim>
void start(Queue& queue, const SparseRows& rows, const RoundedRows& out, std::int64_t first) {
    static_assert(sizeof(Memory<kDim>) <= kSharedBytesEverywhere);
    with_cache(rows.args.cache.type, [&](auto cache) {
        launch(queue,
               {dim3(static_cast<unsigned>(out.rows - first),
                     static_cast<unsigned>(rows.args.shape.kv_heads)),
                kThreads, sizeof(Memory<kDim>)},
               attend_rows<kDim, decltype(cache)>, rows, out, first);
    });
}

}  // namespace

bool attends(const op::AttentionShape& shape) {
    return (shape.head_dim == 64 || shape.head_dim == 128 || shape.head_dim == 256) &&
           shape.heads / shape.kv_heads <= kHeads;
}

void attend(Queue& queue, const SparseRows& rows, const RoundedRows& out) {
    STRATA_CHECK(attends(rows.args.shape));
    const std::int64_t first = attend_early(queue, rows, out);
    if (first == out.rows) return;
    if (rows.args.shape.head_dim == 256) return start<256>(queue, rows, out, first);
    if (rows.args.shape.head_dim == 128) return start<128>(queue, rows, out, first);
    start<64>(queue, rows, out, first);
}

}  // namespace strata::cuda::prompt
