// Products with the matrices of experts. Those of blocks: multiply_warpgroup.cuh where the chip has
// what it takes, else multiply_unpacked.cuh. The others go as multiply.cuh, converted to BF16 on
// the way to shared memory: what a thread converts next is on its way while the tensor cores work.
#include "backend/cuda/columns.cuh"
#include "backend/cuda/multiply.cuh"
#include "backend/cuda/multiply_experts.h"
#include "backend/cuda/multiply_unpacked.cuh"
#include "backend/cuda/multiply_warpgroup.cuh"

namespace strata::cuda::prompt {
namespace {

constexpr int kTileCols = 128;
using Shape = TileShape<kExpertTileRows, kTileCols>;

// One matrix of each expert, or eight rows of one and eight of another in turn.
template <typename Columns>
struct MemberMatrix {
    const std::byte* const* at;
    const std::byte* const* turning;  // null: none
    std::int64_t row_bytes;
    int rows;
    int cols;

    // A thread converts half a step of a row.
    template <int kCols>
    struct Tile {
        static_assert(kCols * kStepColumns == kMultiplyThreads * kUnpackColumns);

        const std::byte* row = nullptr;  // null: zeros
        int cols;
        typename Columns::Raw raw;

        __device__ Tile(const MemberMatrix& matrix, const TileJob& job) : cols(matrix.cols) {
            int r = job.col + static_cast<int>(threadIdx.x) / 2;
            const std::byte* const* at = matrix.at;
            if (matrix.turning != nullptr) {
                if (r / 8 % 2 != 0) at = matrix.turning;
                r = r / 16 * 8 + r % 8;
            }
            if (r < matrix.rows) row = at[job.matrix] + r * matrix.row_bytes;
            load(0);
        }
        __device__ static int first(int step) {
            return step * static_cast<int>(kStepColumns) +
                   static_cast<int>(threadIdx.x) % 2 * kUnpackColumns;
        }
        __device__ void load(int step) {
            if (row != nullptr && first(step) < cols) Columns::load(row, cols, first(step), raw);
        }
        __device__ void bring(std::byte* tile, int step) {
            float v[kUnpackColumns] = {};
            if (row != nullptr && first(step) < cols) {
                Columns::values(raw, first(step), v);
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

std::int64_t row_bytes_of(const ExpertMatrices& matrices) {
    const quant::TypeInfo& type = quant::info(matrices.type);
    return matrices.cols / type.block * type.block_bytes;
}

unsigned grid_of(const Routing& routing, std::int64_t blocks_across) {
    const std::int64_t blocks = routing.tiles_max * blocks_across;
    STRATA_CHECK(blocks <= INT32_MAX);
    return static_cast<unsigned>(blocks);
}

void check(const RoundedRows& x, const ExpertMatrices& matrices, const Routing& routing) {
    STRATA_CHECK(routing.tile_rows == kExpertTileRows && x.stride == whole_steps(matrices.cols));
    STRATA_CHECK(x.rows * x.stride / 8 <= INT32_MAX);
}

// `turning`: null, or the addresses of a second matrix of the same type and shape.
template <typename Store>
void multiply_tiles_of(Queue& queue, const RoundedRows& x, const ExpertMatrices& matrices,
                       const std::byte* const* turning, const Routing& routing,
                       const std::int32_t* index, std::int64_t cols, const Store& store) {
    check(x, matrices, routing);
    const auto col_tiles = static_cast<int>((cols + kTileCols - 1) / kTileCols);
    const auto start = [&](auto columns) {
        using Matrix = MemberMatrix<decltype(columns)>;
        launch(queue, {dim3(grid_of(routing, col_tiles)), kMultiplyThreads, Shape::kSharedBytes},
               multiply_tiles<kExpertTileRows, kTileCols, Matrix, MemberPlan, Store>, x, index,
               Matrix{matrices.at, turning, row_bytes_of(matrices), static_cast<int>(matrices.rows),
                      static_cast<int>(matrices.cols)},
               MemberPlan{routing, col_tiles}, store);
    };
    if (matrices.type == quant::Type::f32) return start(PlainColumns<StoredF32>());
    if (matrices.type == quant::Type::f16) return start(PlainColumns<StoredF16>());
    STRATA_CHECK(matrices.type == quant::Type::bf16);
    start(PlainColumns<StoredBF16>());
}

// use(a constant type of blocks) for `type`.
template <typename Use>
void with_blocks(quant::Type type, Use use) {
    switch (type) {
#define STRATA_CASE(name)   \
    case quant::Type::name: \
        return use(std::integral_constant<quant::Type, quant::Type::name>());
        STRATA_BLOCK_TYPES(STRATA_CASE)
#undef STRATA_CASE
        default:
            STRATA_CHECK(!"a matrix of a format without blocks");
    }
}

// `rows` of the products, all matrices together.
void start_unpacked(Queue& queue, UnpackedProduct work, std::int64_t rows) {
    check(work.x, work.matrices, work.routing);
    work.row_bytes = row_bytes_of(work.matrices);
    work.rows = static_cast<int>(rows);
    work.blocks_across = static_cast<int>((rows + unpacked::kBlockRows - 1) / unpacked::kBlockRows);
    const dim3 blocks(grid_of(work.routing, work.blocks_across));
    with_blocks(work.matrices.type, [&](auto type) {
        launch(queue, {blocks, unpacked::kThreads, unpacked::shared_size<type()>()},
               unpacked::multiply_unpacked<type()>, work);
    });
}

// The columns from which a block of warpgroups has work enough with one block of rows, and the
// blocks of rows that it goes through below.
constexpr std::int64_t kLongRows = 2048;
constexpr int kShortRowBlocks = 4;

void start_warpgroups(Queue& queue, UnpackedProduct work, std::int64_t rows) {
    STRATA_CHECK(work.routing.tile_rows == kExpertTileRows);
    STRATA_CHECK(work.x.rows * work.x.stride / 8 <= INT32_MAX);
    work.row_bytes = row_bytes_of(work.matrices);
    work.rows = static_cast<int>(rows);
    work.row_blocks = work.matrices.cols < kLongRows ? kShortRowBlocks : 1;
    const std::int64_t each = std::int64_t{warpgroups::kBlockRows} * work.row_blocks;
    work.blocks_across = static_cast<int>((rows + each - 1) / each);
    const dim3 blocks(grid_of(work.routing, work.blocks_across));
    with_blocks(work.matrices.type, [&](auto type) {
        launch(queue, {blocks, warpgroups::kThreads, warpgroups::Shared<type()>::kBytes},
               warpgroups::multiply_warpgroups<type()>, work);
    });
}

// The same values with their columns spread, zeros where a row ends within a step.
struct Spread {
    RoundedRows from;
    RoundedRows to;

    // Of places 2 i and 2 i + 1 of all rows.
    __device__ void operator()(std::int64_t i) const {
        const auto pairs = static_cast<int>(to.stride / 2);
        const std::int64_t row = i / pairs;
        const int place = static_cast<int>(i - row * pairs) * 2;
        const int column = spread_column(place);
        *reinterpret_cast<std::uint32_t*>(to.row(row) + place) =
            column < from.stride ? *reinterpret_cast<const std::uint32_t*>(from.row(row) + column)
                                 : 0;
    }
};
RoundedRows take_spread(Queue& queue, std::int64_t rows, std::int64_t cols) {
    constexpr std::int64_t kSpan = unpacked::kSpan;
    return take_rounded(queue, rows, (cols + kSpan - 1) / kSpan * kSpan);
}
RoundedRows spread_rows(Queue& queue, const RoundedRows& rows) {
    const RoundedRows spread = take_spread(queue, rows.rows, rows.stride);
    for_each(queue, spread.rows * (spread.stride / 2), Spread{rows, spread});
    return spread;
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

void multiply_members(Queue& queue, const MemberRows& x, const ExpertMatrices& matrices,
                      const Routing& routing, bool by_member, MatrixView<float> out) {
    const std::int32_t* index = by_member ? nullptr : routing.row;
    if (!has_blocks(matrices.type)) {
        STRATA_CHECK(!x.spread);
        return multiply_tiles_of(queue, x.rows, matrices, nullptr, routing, index, out.cols,
                                 StoreMembers{StoreRows{out}, matrices.factors});
    }
    UnpackedProduct work{
        .x = x.rows, .index = index, .matrices = matrices, .routing = routing, .out = out};
    if (!x.spread && !runs_warpgroups(queue, routing.chosen.rows)) {
        return start_unpacked(queue, work, out.cols);
    }
    if (!x.spread) work.x = spread_rows(queue, x.rows);
    start_warpgroups(queue, work, out.cols);
}

MemberRows multiply_members_gated(Queue& queue, const RoundedRows& x, const ExpertMatrices& gate,
                                  const ExpertMatrices& up, const Routing& routing,
                                  quant::Type next) {
    const std::int64_t members = routing.chosen.rows * routing.chosen.cols;
    if (gate.type == up.type && has_blocks(gate.type)) {
        UnpackedProduct work{.x = x,
                             .index = routing.row,
                             .matrices = gate,
                             .turning = up.at,
                             .turning_factors = up.factors,
                             .routing = routing};
        if (runs_warpgroups(queue, routing.chosen.rows)) {
            work.x = spread_rows(queue, x);
            work.spreads_hidden = has_blocks(next);
            work.hidden = work.spreads_hidden ? take_spread(queue, members, gate.rows)
                                              : take_rounded(queue, members, gate.rows);
            start_warpgroups(queue, work, 2 * work.hidden.stride);
        } else {
            work.hidden = take_rounded(queue, members, gate.rows);
            start_unpacked(queue, work, 2 * work.hidden.stride);
        }
        return {work.hidden, work.spreads_hidden};
    }
    const RoundedRows hidden = take_rounded(queue, members, gate.rows);
    if (gate.type == up.type) {
        multiply_tiles_of(
            queue, x, gate, up.at, routing, routing.row, 2 * hidden.stride,
            StoreMembersGated{StoreGated{hidden, gate.rows}, gate.factors, up.factors});
        return {hidden};
    }
    const MatrixView<float> gates = queue.matrix(hidden.rows, gate.rows);
    const MatrixView<float> ups = queue.matrix(hidden.rows, up.rows);
    multiply_members(queue, {x}, gate, routing, false, gates);
    multiply_members(queue, {x}, up, routing, false, ups);
    for_each(queue, hidden.rows * hidden.stride, JoinGated{gates, ups, hidden});
    return {hidden};
}

}  // namespace strata::cuda::prompt
