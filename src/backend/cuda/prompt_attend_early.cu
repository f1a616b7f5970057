// Rows early in a sequence, which keep much of what is before them: a block takes all query heads
// of a key head for several rows, and goes through all keys before the last of them, those that a
// row does not keep masked. So a key is read once for eight rows or more; alone (prompt_attend.cu)
// each row reads 2 MB from the second cache level. Masked keys add zeros to a row's sums: its bits
// do not depend on the rows beside it.
//
// Warps have sixteen of the block's rows of heads each. Bound by loads from shared memory, about
// one for two products of tensor cores.
#include <algorithm>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/prompt_bring.cuh"
#include "backend/cuda/prompt_sparse.h"
#include "backend/cuda/sparse.cuh"
#include "base/check.h"

namespace strata::cuda::prompt {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kLines = 16 * kWarps;  // rows of heads of a block
constexpr int kKeys = 64;            // of a tile
constexpr int kRatio = 4;            // the only one that there are masks for
constexpr int kRowsMax = 16;         // of a block
// From here on a row is sooner done alone.
constexpr int kEarlyEnd = 16384;
constexpr int kMaskWords = kEarlyEnd / kRatio / 32;

template <int kDim>
struct Memory {
    std::byte keys[2][kKeys * 2 * kDim];
    std::byte values[2][kKeys * 2 * kDim];
    std::byte queries[kLines * 2 * kDim];
    unsigned kept[kRowsMax][kMaskWords];  // a bit a block, and the one that has begun
};

template <int kDim, typename Cache>
struct Early {
    const SparseRows& rows;
    Memory<kDim>& memory;
    int first;  // row of the block
    int count;  // its rows
    int key_head;
    int heads;  // that share it
    int lane;
    int warp;

    // The last blocks of rows come first: they take longest.
    __device__ Early(const SparseRows& rows_, Memory<kDim>& memory_, int all, int each)
        : rows(rows_),
          memory(memory_),
          first((static_cast<int>(gridDim.x) - 1 - static_cast<int>(blockIdx.x)) * each),
          count(min(each, all - first)),
          key_head(static_cast<int>(blockIdx.y)),
          heads(rows_.args.shape.heads / rows_.args.shape.kv_heads),
          lane(static_cast<int>(threadIdx.x) % kWarp),
          warp(static_cast<int>(threadIdx.x) / kWarp) {}

    __device__ int position(int row) const {
        return static_cast<int>(rows.args.first) + first + row;
    }
    __device__ const float* query(int line) const {
        return rows.query.row(first + line / heads) +
               std::int64_t{key_head * heads + line % heads} * 2 * kDim;
    }
    __device__ void round_queries() const {
        for (int i = static_cast<int>(threadIdx.x); i < kLines * kDim / 4; i += kThreads) {
            const int line = i / (kDim / 4);
            const int c = i % (kDim / 4) * 4;
            uint2 four{};
            if (line < count * heads) {
                const float4 v = *reinterpret_cast<const float4*>(query(line) + c);
                four = make_uint2(f16_pair(v.x, v.y), f16_pair(v.z, v.w));
            }
            std::byte* piece = row_piece<kDim>(memory.queries, line, c / 8);
            *reinterpret_cast<uint2*>(piece + c % 8 * 2) = four;
        }
    }
    __device__ void mark_kept() const {
        const auto thread = static_cast<int>(threadIdx.x);
        const int words = min(kMaskWords, position(count - 1) / (32 * kRatio) + 1);
        for (int row = 0; row < count; ++row) {
            const bool all = Seen(rows, first + row).all();
            for (int i = thread; i < words; i += kThreads) memory.kept[row][i] = all ? ~0u : 0u;
        }
        __syncthreads();
        for (int row = 0; row < count; ++row) {
            const Seen seen(rows, first + row);
            if (seen.all()) continue;
            for (int i = thread; i <= seen.kept; i += kThreads) {
                const int block = i < seen.kept ? seen.chosen[i] : seen.blocks;
                if (block < 32 * words) {
                    atomicAdd(&memory.kept[row][block / 32], 1u << block % 32);
                }
            }
        }
    }
    __device__ void bring(int tile, int end) const {
        constexpr int kPieces = kDim / 8;
        const int piece = static_cast<int>(threadIdx.x) % kPieces;
#pragma unroll
        for (int i = 0; i < kKeys * kPieces / kThreads; ++i) {
            const int row = static_cast<int>(threadIdx.x) / kPieces + i * (kThreads / kPieces);
            const int key = tile * kKeys + row;
            bring_pieces<kDim, Cache>(row_piece<kDim>(memory.keys[tile % 2], row, piece),
                                      row_piece<kDim>(memory.values[tile % 2], row, piece),
                                      rows.args, key, key_head, piece, key < end);
        }
        commit_copies();
    }
};

// Where a lane's pieces of a row lie (row_piece()): what depends on the lane, apart from what is
// known when the kernel is compiled. The row's number is lane % 8 but for a multiple of 8, and the
// piece's 4 c + lane / 8, or 2 i + lane / 16.
struct Offsets {
    int of_four[2];  // c % 2
    int of_pair[4];  // i % 4

    __device__ explicit Offsets(int lane) {
#pragma unroll
        for (int c = 0; c < 2; ++c) of_four[c] = ((4 * c + lane / 8) ^ lane % 8) * 16;
#pragma unroll
        for (int i = 0; i < 4; ++i) of_pair[i] = ((2 * i + lane / 16) ^ lane % 8) * 16;
    }
    __device__ int four(int c) const { return of_four[c % 2] + c / 2 * 128; }
    __device__ int pair(int i) const { return of_pair[i % 4] + i / 4 * 128; }
};

// What a lane has of lines lane / 4 and 8 further of its warp: the softmax so far.
template <int kDim>
struct Lines {
    float out[kDim / 8][4] = {};
    float largest[2] = {-INFINITY, -INFINITY};
    float weights[2] = {};

    // The scores of a tile of keys.
    __device__ static void score(float (&scores)[kKeys / 8][4], const std::byte* queries,
                                 const std::byte* keys, const Offsets& at, int lane) {
        queries += lane % 16 * 2 * kDim;
        keys += lane % 8 * 2 * kDim;
#pragma unroll
        for (int c = 0; c < kDim / 32; ++c) {
            std::uint32_t q[2][4];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                load_tiles(q[i], queries + at.pair(2 * c + i));
            }
#pragma unroll
            for (int j = 0; j < kKeys / 8; ++j) {
                std::uint32_t k[4];
                load_tiles(k, keys + j * 16 * kDim + at.four(c));
                add_tile_f16(scores[j], q[0], k[0], k[1]);
                add_tile_f16(scores[j], q[1], k[2], k[3]);
            }
        }
    }
    // Turns the scores of line `half` into weights, of keys with their bit in `kept` and at most
    // `last`; sums scaled to the largest score so far.
    __device__ void weigh(float (&scores)[kKeys / 8][4], int half, unsigned kept, int last,
                          int lane) {
        const float scale = 1.0f / sqrtf(static_cast<float>(kDim));
        float most = largest[half];
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int key = 8 * j + lane % 4 * 2 + i;
                const bool is_kept = (kept >> (2 * j + lane % 4 / 2) & 1u) != 0 && key <= last;
                float& v = scores[j][2 * half + i];
                v = is_kept ? v * scale : -INFINITY;
                most = fmaxf(most, v);
            }
        }
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
        // Where no key was kept yet all weights are 0.
        const float base = most == -INFINITY ? 0.0f : most;
        const float shrink = __expf(largest[half] - base);
        largest[half] = most;
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float& v = scores[j][2 * half + i];
                v = __expf(v - base);
                sum += v;
            }
        }
        weights[half] = __fmaf_rn(weights[half], shrink, sum);
#pragma unroll
        for (int j = 0; j < kDim / 8; ++j) {
            out[j][2 * half] *= shrink;
            out[j][2 * half + 1] *= shrink;
        }
    }
    __device__ void add(const float (&weights_of)[kKeys / 8][4], const std::byte* values,
                        const Offsets& at, int lane) {
        values += (lane / 8 % 2 * 8 + lane % 8) * 2 * kDim;
#pragma unroll
        for (int s = 0; s < kKeys / 16; ++s) {
            const float(&low)[4] = weights_of[2 * s];
            const float(&high)[4] = weights_of[2 * s + 1];
            const std::uint32_t p[4] = {f16_pair(low[0], low[1]), f16_pair(low[2], low[3]),
                                        f16_pair(high[0], high[1]), f16_pair(high[2], high[3])};
#pragma unroll
            for (int j = 0; j < kDim / 8; j += 2) {
                std::uint32_t v[4];
                load_tiles_turned(v, values + s * 32 * kDim + at.pair(j / 2));
                add_tile_f16(out[j], p, v[0], v[1]);
                add_tile_f16(out[j + 1], p, v[2], v[3]);
            }
        }
    }
    // The line's result, where it is one.
    __device__ void store(int half, const float* gate, std::uint16_t* to, int lane) const {
        float all = weights[half];
        all += __shfl_xor_sync(kAllLanes, all, 1);
        all += __shfl_xor_sync(kAllLanes, all, 2);
        if (to == nullptr) return;
#pragma unroll
        for (int j = 0; j < kDim / 8; ++j) {
            const int c = 8 * j + lane % 4 * 2;
            const float2 g = *reinterpret_cast<const float2*>(gate + c);
            *reinterpret_cast<std::uint32_t*>(to + c) = bf16_pair(
                out[j][2 * half] / all * sigmoid(g.x), out[j][2 * half + 1] / all * sigmoid(g.y));
        }
    }
};

template <int kDim, typename Cache>
__global__ void __launch_bounds__(kThreads, 1)
    attend_early_rows(SparseRows rows, RoundedRows out, int all, int each) {
    if (!kPromptsRun) return;
    auto& memory = *reinterpret_cast<Memory<kDim>*>(shared_bytes());
    const Early<kDim, Cache> own(rows, memory, all, each);
    const int end = own.position(own.count - 1) + 1;
    own.bring(0, end);
    own.round_queries();
    own.mark_kept();
    const Offsets at(own.lane);
    Lines<kDim> lines;
    int row[2];  // of the block; -1: none
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int line = 16 * own.warp + own.lane / 4 + 8 * half;
        row[half] = line < own.count * own.heads ? line / own.heads : -1;
    }
    for (int tile = 0; tile * kKeys < end; ++tile) {
        wait_copies<0>();
        __syncthreads();
        own.bring(tile + 1, end);  // where the tile before the barrier was
        unsigned kept[2];
        int last[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            last[half] = row[half] < 0 ? -1 : own.position(row[half]) - tile * kKeys;
            kept[half] =
                last[half] < 0 ? 0u : memory.kept[row[half]][tile / 2] >> tile % 2 * 16 & 0xffffu;
        }
        if (!__any_sync(kAllLanes, (kept[0] | kept[1]) != 0)) continue;
        float scores[kKeys / 8][4] = {};
        Lines<kDim>::score(scores, memory.queries + own.warp * 32 * kDim, memory.keys[tile % 2], at,
                           own.lane);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            lines.weigh(scores, half, kept[half], last[half], own.lane);
        }
        lines.add(scores, memory.values[tile % 2], at, own.lane);
    }
    wait_copies<0>();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int line = 16 * own.warp + own.lane / 4 + 8 * half;
        const bool there = row[half] >= 0;
        std::uint16_t* to = nullptr;
        if (there) {
            to = out.row(own.first + row[half]) +
                 std::int64_t{own.key_head * own.heads + line % own.heads} * kDim;
        }
        lines.store(half, there ? own.query(line) + kDim : nullptr, to, own.lane);
    }
}

template <int kDim>
std::int64_t start(Queue& queue, const SparseRows& rows, const RoundedRows& out,
                   std::int64_t count) {
    if (sizeof(Memory<kDim>) > queue.shared_bytes_max()) return 0;
    const op::AttentionShape& shape = rows.args.shape;
    const int each = std::min(kRowsMax, kLines / (shape.heads / shape.kv_heads));
    with_cache(rows.args.cache.type, [&](auto cache) {
        launch(queue,
               {dim3(static_cast<unsigned>((count + each - 1) / each),
                     static_cast<unsigned>(shape.kv_heads)),
                kThreads, sizeof(Memory<kDim>)},
               attend_early_rows<kDim, decltype(cache)>, rows, out, static_cast<int>(count), each);
    });
    return count;
}

}  // namespace

std::int64_t attend_early(Queue& queue, const SparseRows& rows, const RoundedRows& out) {
    const op::AttentionShape& shape = rows.args.shape;
    const std::int64_t count = std::min(kEarlyEnd - rows.args.first, out.rows);
    if (shape.ratio != kRatio || count <= 0) return 0;
    if (shape.head_dim == 256) return start<256>(queue, rows, out, count);
    if (shape.head_dim == 128) return start<128>(queue, rows, out, count);
    STRATA_CHECK(shape.head_dim == 64);
    return start<64>(queue, rows, out, count);
}

}  // namespace strata::cuda::prompt
