// As multiply.cuh, with the weights unpacked on the way to shared memory: an expert has few rows,
// so that its matrix in BF16 would be as many bytes as all else together. What a thread unpacks
// next is on its way while the tensor cores work.
#include "backend/cuda/columns.cuh"
#include "backend/cuda/multiply.cuh"
#include "backend/cuda/multiply_experts.h"

namespace strata::cuda::prompt {
namespace {

constexpr int kTileCols = 128;
using Shape = TileShape<kExpertTileRows, kTileCols>;
// What a block may have at most on chips from 8.0 on.
constexpr std::size_t kSharedBytesEverywhere = std::size_t{99} << 10;

// One matrix of each expert, or eight rows of one and eight of another in turn.
template <typename Columns>
struct MemberMatrix {
    // Of a copy in shared memory, where it fits beside the tiles on every chip.
    static constexpr std::size_t kBookBytes =
        Shape::kSharedBytes + Columns::kBookBytes <= kSharedBytesEverywhere ? Columns::kBookBytes
                                                                            : 0;

    const std::byte* const* at;
    const std::byte* const* turning;  // null: none
    std::int64_t row_bytes;
    int rows;
    int cols;

    // A thread unpacks half a step of a row.
    template <int kCols>
    struct Tile {
        static_assert(kCols * kStepColumns == kMultiplyThreads * kUnpackColumns);

        const std::byte* row = nullptr;  // null: zeros
        int cols;
        const unsigned* book;
        typename Columns::Raw raw;

        __device__ Tile(const MemberMatrix& matrix, const TileJob& job, std::byte* memory)
            : cols(matrix.cols), book(reinterpret_cast<const unsigned*>(memory)) {
            int r = job.col + static_cast<int>(threadIdx.x) / 2;
            const std::byte* const* at = matrix.at;
            if (matrix.turning != nullptr) {
                if (r / 8 % 2 != 0) at = matrix.turning;
                r = r / 16 * 8 + r % 8;
            }
            if (r < matrix.rows) row = at[job.matrix] + r * matrix.row_bytes;
            load(0);
            if constexpr (kBookBytes == 0) {
                book = Columns::book();
            } else {
                auto* to = reinterpret_cast<unsigned*>(memory);
                const unsigned* from = Columns::book();
                for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(kBookBytes / 4);
                     i += kMultiplyThreads) {
                    to[i] = from[i];
                }
                __syncthreads();
            }
        }
        __device__ static int first(int step) {
            return step * static_cast<int>(kStepColumns) +
                   static_cast<int>(threadIdx.x) % 2 * kUnpackColumns;
        }
        __device__ void load(int step) {
            if (row != nullptr && first(step) < cols) Columns::load(row, cols, first(step), raw);
        }
        __device__ void bring(std::byte* tile, int step) {
            float v[kUnpackColumns];
            if (row != nullptr && first(step) < cols) {
                Columns::values(raw, first(step), book, v);
            } else {
#pragma unroll
                for (int i = 0; i < kUnpackColumns; ++i) v[i] = 0.0f;
            }
#pragma unroll
            for (int i = 0; i < kUnpackColumns / 8; ++i) {
                const int piece = static_cast<int>(threadIdx.x) % 2 * (kUnpackColumns / 8) + i;
                *reinterpret_cast<uint4*>(tile_at(tile, static_cast<int>(threadIdx.x) / 2, piece)) =
                    bf16_eight(v + 8 * i);
            }
            load(step + 1);
        }
    };
};

struct MemberPlan {
    static constexpr bool kOftenPartial = true;
    Routing routing;
    int col_tiles = 0;

    __device__ bool find(TileJob& job, int, int tile_cols) const {
        const int tile = static_cast<int>(blockIdx.x) / col_tiles;
        if (tile >= *routing.tile_count) return false;
        const GroupTile group = routing.tiles[tile];
        job = {group.member, routing.first[group.expert + 1],
               static_cast<int>(blockIdx.x) % col_tiles * tile_cols, group.expert};
        return true;
    }
};

// With the factor of the member's expert.
struct StoreMembers {
    StoreRows rows;
    const float* factors;

    __device__ void operator()(std::int64_t row, int col, const float (&v)[4][2],
                               int matrix) const {
        StoreRows own = rows;
        if (factors != nullptr) own.factor = factors[matrix];
        own(row, col, v, matrix);
    }
};

struct StoreMembersGated {
    StoreGated rows;
    const float* gate_factors;
    const float* up_factors;

    __device__ void operator()(std::int64_t row, int col, const float (&v)[4][2],
                               int matrix) const {
        StoreGated own = rows;
        if (gate_factors != nullptr) own.gate_factor = gate_factors[matrix];
        if (up_factors != nullptr) own.up_factor = up_factors[matrix];
        own(row, col, v, matrix);
    }
};

// `turning`: null, or the addresses of a second matrix of the same type and shape.
template <typename Store>
void multiply_tiles_of(Queue& queue, const RoundedRows& x, const ExpertMatrices& matrices,
                       const std::byte* const* turning, const Routing& routing,
                       const std::int32_t* index, std::int64_t cols, const Store& store) {
    STRATA_CHECK(routing.tile_rows == kExpertTileRows && x.stride == whole_steps(matrices.cols));
    const quant::TypeInfo& type = quant::info(matrices.type);
    const std::int64_t row_bytes = matrices.cols / type.block * type.block_bytes;
    const auto col_tiles = static_cast<int>((cols + kTileCols - 1) / kTileCols);
    const std::int64_t blocks = routing.tiles_max * col_tiles;
    STRATA_CHECK(x.rows * x.stride / 8 <= INT32_MAX);
    STRATA_CHECK(blocks <= INT32_MAX);
    with_columns(matrices.type, [&](auto columns) {
        using Columns = decltype(columns);
        using Matrix = MemberMatrix<Columns>;
        launch(queue,
               {dim3(static_cast<unsigned>(blocks)), kMultiplyThreads,
                Shape::kSharedBytes + Matrix::kBookBytes},
               multiply_tiles<kExpertTileRows, kTileCols, Matrix, MemberPlan, Store>, x, index,
               Matrix{matrices.at, turning, row_bytes, static_cast<int>(matrices.rows),
                      static_cast<int>(matrices.cols)},
               MemberPlan{routing, col_tiles}, store);
    });
}

// Of products that were made one by one.
struct JoinGated {
    MatrixView<const float> gate;
    MatrixView<const float> up;
    RoundedRows hidden;

    __device__ void operator()(std::int64_t i) const {
        const std::int64_t row = i / hidden.stride;
        const std::int64_t col = i % hidden.stride;
        const bool there = col < gate.cols;
        hidden.data[i] = bf16_of(there ? silu(gate.row(row)[col]) * up.row(row)[col] : 0.0f);
    }
};

}  // namespace

void multiply_members(Queue& queue, const RoundedRows& x, const ExpertMatrices& matrices,
                      const Routing& routing, bool by_member, MatrixView<float> out) {
    multiply_tiles_of(queue, x, matrices, nullptr, routing, by_member ? nullptr : routing.row,
                      out.cols, StoreMembers{StoreRows{out}, matrices.factors});
}

void multiply_members_gated(Queue& queue, const RoundedRows& x, const ExpertMatrices& gate,
                            const ExpertMatrices& up, const Routing& routing,
                            const RoundedRows& hidden) {
    if (gate.type == up.type) {
        multiply_tiles_of(
            queue, x, gate, up.at, routing, routing.row, 2 * hidden.stride,
            StoreMembersGated{StoreGated{hidden, gate.rows}, gate.factors, up.factors});
        return;
    }
    const MatrixView<float> gates = queue.matrix(hidden.rows, gate.rows);
    const MatrixView<float> ups = queue.matrix(hidden.rows, up.rows);
    multiply_members(queue, x, gate, routing, false, gates);
    multiply_members(queue, x, up, routing, false, ups);
    for_each(queue, hidden.rows * hidden.stride, JoinGated{gates, ups, hidden});
}

}  // namespace strata::cuda::prompt
