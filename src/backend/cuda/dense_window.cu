// Bounded by reading the weights. The codes of a unit and those of x are whole numbers, whose
// products are exact in any order: so tensor cores make them, and what is left is adding up units
// in the order of dense_rows.cu.
//
// A warp multiplies eight rows of a weight with four units of 32 columns of up to four rows of x at
// once. A lane brings 16 codes of one unit of one weight row, of which a product takes eight. On
// the other side of the product are the four units of each row of x in rows of their own, zeros but
// for the lanes that bring their columns. What a lane needs of x it keeps; a block goes through
// several eights of rows, the next of which are on their way.
#include "backend/cuda/dense_window.h"

#include <algorithm>

#include "backend/cuda/tensor_core.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr int kRows = kDenseWindowRows;
constexpr int kWindow = 4;  // rows of x that go through a weight together
constexpr int kSetsMost = 2;
constexpr int kRowsLeast = 3;  // fewer cost less as products of one row after the other
constexpr int kQuad = 4;       // units that a warp multiplies at once
constexpr int kScaleBytes = 2;

// Warps of a block: each has of every Shape::lanes units one quad.
template <typename Shape>
constexpr int kWarpsOf = Shape::lanes / kQuad;
// Blocks of a multiprocessor, which registers are enough for: codes of few bits take fewer.
template <quant::Type kType, typename Shape>
constexpr int kBlocksOf = kWarpsOf<Shape> == 4 ? (kType == quant::Type::q8_0 ? 3 : 4)
                                               : (kType == quant::Type::q4_0 ? 2 : 1);

// Whether there is unit `u` of the lanes of a quad, whose first lane has unit `quad`.
template <typename Shape>
__device__ inline bool has_unit(int u, int quad) {
    return Shape::lanes * Shape::held == Shape::units || u * Shape::lanes + quad < Shape::units;
}
__device__ inline int quad_of_warp() { return static_cast<int>(threadIdx.x) / kWarp * kQuad; }

__device__ inline int column_of_lane() { return static_cast<int>(threadIdx.x) % kWarp / 4; }
__device__ inline int quarter_of_lane() { return static_cast<int>(threadIdx.x) % 4; }

// The first of the two units of a quad whose sums the lane gets.
__device__ inline int unit_of_lane() { return column_of_lane() / kWindow * 2; }

// The lane's codes of x: of row column_of_lane() % 4 of each set of kWindow rows those of the unit
// of its quarter, where the row of the product is that unit's; and the scales of what it gets sums
// of. In shared memory, each lane's for itself.
template <typename Shape, int kSets>
class WindowRows {
  public:
    static constexpr int kThreads = kWarpsOf<Shape> * kWarp;
    static constexpr int kCodesBytes = kSets * Shape::held * 2 * kThreads * 16;
    static constexpr int kBytes = kCodesBytes + kSets * Shape::held * kThreads * 8;

    __device__ static void load(const DenseArgs& args, int set) {
        const int t = min(set * kWindow + column_of_lane() % kWindow, args.x_rows - 1);
        const std::byte* row = args.made + t * Shape::x_bytes;
        const bool own = quarter_of_lane() / 2 * 2 == unit_of_lane();
        const int quad = quad_of_warp();
        const auto* codes_at = reinterpret_cast<const uint4*>(row) + quad + quarter_of_lane();
        const float* scale_at =
            reinterpret_cast<const float*>(row) + 8 * Shape::units + quad + unit_of_lane();
#pragma unroll
        for (int u = 0; u < Shape::held; ++u) {
            if (!has_unit<Shape>(u, quad)) break;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int at = half * Shape::units + u * Shape::lanes;
                place(set, u, half) = own ? codes_at[at] : uint4{0, 0, 0, 0};
            }
            scale(set, u) = *reinterpret_cast<const float2*>(scale_at + u * Shape::lanes);
        }
    }
    __device__ static uint4& place(int set, int u, int half) {
        auto* all = reinterpret_cast<uint4*>(shared_bytes());
        return all[((set * Shape::held + u) * 2 + half) * kThreads + static_cast<int>(threadIdx.x)];
    }
    __device__ static float2& scale(int set, int u) {
        auto* all = reinterpret_cast<float2*>(shared_bytes() + kCodesBytes);
        return all[(set * Shape::held + u) * kThreads + static_cast<int>(threadIdx.x)];
    }
};

// The part that has a tile, and which of the part's it is.
struct PartTile {
    const DensePart& part;
    int number;

    __device__ static PartTile of(const DenseArgs& args, int tile) {
        const int own = part_of(args, tile);
        return {args.part[own], tile - args.first_block[own]};
    }
};

// Where a lane's first unit of a weight row is.
struct Lane {
    const std::byte* codes;  // its first 16 bytes
    int unit;
    int units;  // of the row
};

// The codes of the unit `further` of a lane's first one, of which tensor cores get kTimes each.
template <quant::Type kType>
struct LaneCodes;

template <>
struct LaneCodes<quant::Type::q8_0> {
    static constexpr int kTimes = 1;
    uint4 halves[2];

    __device__ void load(const Lane& lane, int further) {
        halves[0] = load_early<uint4>(lane.codes + further * 16);
        halves[1] = load_early<uint4>(lane.codes + (lane.units + further) * 16);
    }
    __device__ uint4 half(int i) const { return halves[i]; }
};

// A nibble in the upper half of a byte, with its upper bit turned, is 16 times that nibble less 8.
template <>
struct LaneCodes<quant::Type::q4_0> {
    static constexpr int kTimes = 16;
    uint4 nibbles;

    __device__ void load(const Lane& lane, int further) {
        nibbles = load_early<uint4>(lane.codes + further * 16);
    }
    __device__ uint4 half(int i) const {
        const auto codes = [i](unsigned word) {
            return ((i == 0 ? word << 4 : word) & 0xf0f0f0f0u) ^ 0x80808080u;
        };
        return {codes(nibbles.x), codes(nibbles.y), codes(nibbles.z), codes(nibbles.w)};
    }
};

// The same with five bits, 8 (code - 16), whose upper ones are those of a word; the words of a row
// lie behind all its nibbles.
template <>
struct LaneCodes<quant::Type::q5_0> {
    static constexpr int kTimes = 8;
    uint4 nibbles;
    unsigned upper;

    __device__ void load(const Lane& lane, int further) {
        const std::byte* bits = lane.codes + lane.units * 16 - lane.unit * 12;
        nibbles = load_early<uint4>(lane.codes + further * 16);
        upper = load_early<unsigned>(bits + further * 4);
    }
    __device__ uint4 half(int i) const {
        const auto codes = [&](unsigned word, int four) {
            const auto bits = static_cast<unsigned>(spread_bits(upper >> (16 * i + 4 * four), 7));
            const unsigned low = (i == 0 ? word << 3 : word >> 1) & 0x78787878u;
            return (low | bits) ^ 0x80808080u;
        };
        return {codes(nibbles.x, 0), codes(nibbles.y, 1), codes(nibbles.z, 2), codes(nibbles.w, 3)};
    }
};

// The lane's codes of weight row column_of_lane() of a tile, and the scales of rows 2 q and 2 q + 1
// of it for its two units, q its quarter.
template <quant::Type kType, typename Shape>
struct WindowWeights {
    LaneCodes<kType> codes[Shape::held];
    unsigned scales[Shape::held][2];

    __device__ void load(const PartTile& tile) {
        constexpr int kUnitBytes = block_fields(kType).bytes;
        const auto row_at = [&](int r) {
            const int row = min(tile.number * kRows + r, tile.part.rows - 1);
            return tile.part.weight + std::int64_t{row} * (Shape::units * kUnitBytes);
        };
        const int quad = quad_of_warp();
        const int unit = quad + quarter_of_lane();
        const Lane lane{row_at(column_of_lane()) + unit * 16, unit, Shape::units};
        const int scale_at =
            Shape::units * (kUnitBytes - kScaleBytes) + (quad + unit_of_lane()) * kScaleBytes;
        const std::byte* scale = row_at(2 * quarter_of_lane()) + scale_at;
        const std::byte* next = row_at(2 * quarter_of_lane() + 1) + scale_at;
#pragma unroll
        for (int u = 0; u < Shape::held; ++u) {
            if (!has_unit<Shape>(u, quad)) break;
            codes[u].load(lane, u * Shape::lanes);
            scales[u][0] = load_early<unsigned>(scale + u * Shape::lanes * kScaleBytes);
            scales[u][1] = load_early<unsigned>(next + u * Shape::lanes * kScaleBytes);
        }
    }
};

// sums[2 i + r] += the products of the lane's unit i of each quad with weight row 2 q + r, of row
// column_of_lane() % 4 of the set.
template <quant::Type kType, typename Shape, int kSets>
__device__ __forceinline__ void add_quads(const WindowWeights<kType, Shape>& weight, int set,
                                          float (&sums)[4]) {
    using X = WindowRows<Shape, kSets>;
    constexpr float kOne = 1.0f / LaneCodes<kType>::kTimes;
    const bool first = quarter_of_lane() % 2 == 0;
#pragma unroll
    for (int u = 0; u < Shape::held; ++u) {
        if (!has_unit<Shape>(u, quad_of_warp())) break;
        int bits[4] = {kSumBits, kSumBits, kSumBits, kSumBits};
        const auto add = [&](unsigned a0, unsigned a1, unsigned b0, unsigned b1) {
            const unsigned a[4] = {first ? a0 : 0, first ? 0 : a0, first ? a1 : 0, first ? 0 : a1};
            add_tile_s8(bits, a, b0, b1);
        };
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint4 a = X::place(set, u, half);
            const uint4 b = weight.codes[u].half(half);
            add(a.x, a.y, b.x, b.y);
            add(a.z, a.w, b.z, b.w);
        }
        const float2 scale = X::scale(set, u);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float own = i == 0 ? scale.x : scale.y;
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const auto half = static_cast<std::uint16_t>(weight.scales[u][r] >> 16 * i);
                sums[2 * i + r] = __fmaf_rn(float_of_sum(bits[2 * i + r]) * kOne,
                                            half_to_float(half) * own, sums[2 * i + r]);
            }
        }
    }
}

// The sums of a tile from those of its units, [kWarps, kQuad, kWindow, kRows], in the order in
// which lanes of dense_rows.cu exchange theirs.
template <int kWarps>
__device__ __forceinline__ float sum_of_units(const float* units) {
    float sums[kWarps][kQuad];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
#pragma unroll
        for (int j = 0; j < kQuad; ++j) sums[w][j] = units[(w * kQuad + j) * kWindow * kRows];
    }
#pragma unroll
    for (int j = 0; j < kQuad; ++j) {
#pragma unroll
        for (int by = kWarps / 2; by > 0; by /= 2) {
#pragma unroll
            for (int w = 0; w < by; ++w) sums[w][j] += sums[w + by][j];
        }
    }
    return (sums[0][0] + sums[0][2]) + (sums[0][1] + sums[0][3]);
}

// The first blocks have the rows without blocks, one each; the others go through the tiles.
template <quant::Type kType, typename Shape, int kSets>
__global__ void __launch_bounds__(kWarpsOf<Shape>* kWarp, kBlocksOf<kType, Shape>)
    dense_window_kernel(const __grid_constant__ DenseArgs args, int values, int tiles) {
    if (!kPromptsRun) return;
    constexpr int kWarps = kWarpsOf<Shape>;
    __shared__ float units[2][kSets][kWarps][kQuad][kWindow][kRows];
    if constexpr (Shape::has_values) {
        static_assert(kWarps == dense::kWarps);  // which multiply_values() counts on
        if (static_cast<int>(blockIdx.x) < values) {
            const PartTile row = PartTile::of(args, static_cast<int>(blockIdx.x));
            return multiply_values<Shape, kWindow>(args, row.part, row.number);
        }
    }
    const auto thread = static_cast<int>(threadIdx.x);
    const int blocks = static_cast<int>(gridDim.x) - values;
    WindowWeights<kType, Shape> next;
    next.load(PartTile::of(args, static_cast<int>(blockIdx.x)));
    follow_earlier_kernels();
#pragma unroll
    for (int set = 0; set < kSets; ++set) WindowRows<Shape, kSets>::load(args, set);
    int turn = 0;
#pragma unroll 1
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += blocks, turn ^= 1) {
        const WindowWeights<kType, Shape> weight = next;
        const PartTile own = PartTile::of(args, tile);
        if (tile + blocks < tiles) next.load(PartTile::of(args, tile + blocks));
#pragma unroll 1
        for (int set = 0; set < kSets; ++set) {
            float sums[4] = {};
            add_quads<kType, Shape, kSets>(weight, set, sums);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float* to = units[turn][set][thread / kWarp][unit_of_lane() + i]
                                 [column_of_lane() % kWindow] +
                            2 * quarter_of_lane();
                *reinterpret_cast<float2*>(to) = make_float2(sums[2 * i], sums[2 * i + 1]);
            }
        }
        // Who comes here with the other half has left this one.
        __syncthreads();
        const int t = thread / kRows;
        const int row = own.number * kRows + thread % kRows;
        if (t < args.x_rows && row < own.part.rows) {
            const float* from = units[turn][t / kWindow][0][0][t % kWindow] + thread % kRows;
            args.store(own.part, t, row, sum_of_units<kWarps>(from));
        }
    }
}

// Shared memory of a block: x and the sums of units.
template <typename Shape>
std::size_t bytes_of(int x_rows) {
    const int sets = x_rows <= kWindow ? 1 : kSetsMost;
    constexpr std::size_t kSums = sizeof(float) * 2 * kWarpsOf<Shape> * kQuad * kWindow * kRows;
    return static_cast<std::size_t>(sets) * (WindowRows<Shape, 1>::kBytes + kSums);
}

template <quant::Type kType, typename Shape, int kSets>
void launch_sets(Queue& queue, const DenseArgs& args, int values, int tiles) {
    using X = WindowRows<Shape, kSets>;
    static_assert(kSets * kWindow * kRows <= X::kThreads);
    const auto room = static_cast<int>(queue.shared_bytes_max() / bytes_of<Shape>(args.x_rows));
    const int each = std::clamp(room, 1, kBlocksOf<kType, Shape>);
    const int blocks = values + std::min(tiles - values, each * queue.multiprocessors());
    launch(queue,
           {.blocks = dim3(static_cast<unsigned>(blocks)),
            .threads = X::kThreads,
            .shared_bytes = X::kBytes,
            .dependent = true},
           dense_window_kernel<kType, Shape, kSets>, args, values, tiles);
}

template <quant::Type kType, typename Shape>
void launch_shape(Queue& queue, const DenseArgs& args, int values, int tiles) {
    if (args.x_rows <= kWindow) return launch_sets<kType, Shape, 1>(queue, args, values, tiles);
    launch_sets<kType, Shape, kSetsMost>(queue, args, values, tiles);
}

// use(shape) for the shape of rows of `cols` columns, if there is one.
template <typename Use>
bool with_shape(int cols, Use use) {
    switch (cols) {
        case Cols2560::cols:
            return use(Cols2560());
        case Cols4096::cols:
            return use(Cols4096());
        case Cols5120::cols:
            return use(Cols5120());
        case Cols6144::cols:
            return use(Cols6144());
        case Cols7680::cols:
            return use(Cols7680());
        default:
            return false;
    }
}

}  // namespace

bool has_dense_window(const Queue& queue, int x_rows, int cols, quant::Type type) {
    if (!queue.has_tensor_cores()) return false;
    if (type != quant::Type::q8_0 && type != quant::Type::q4_0 && type != quant::Type::q5_0) {
        return false;
    }
    if (x_rows < kRowsLeast || x_rows > kSetsMost * kWindow) return false;
    return with_shape(cols, [&](auto shape) {
        return bytes_of<decltype(shape)>(x_rows) <= queue.shared_bytes_max();
    });
}

void launch_dense_window(Queue& queue, const DenseArgs& args, int cols, quant::Type type) {
    int values = 0;
    int tiles = 0;
    for (int i = 0; i < args.parts; ++i) {
        const DensePart& part = args.part[i];
        if (!has_blocks(part.type)) {
            values += part.rows;
            tiles += part.rows;
        } else {
            tiles += (part.rows + kRows - 1) / kRows;
        }
    }
    const bool known = with_shape(cols, [&](auto shape) {
        using Shape = decltype(shape);
        if (type == quant::Type::q8_0) {
            launch_shape<quant::Type::q8_0, Shape>(queue, args, values, tiles);
        } else if (type == quant::Type::q4_0) {
            launch_shape<quant::Type::q4_0, Shape>(queue, args, values, tiles);
        } else {
            STRATA_CHECK(type == quant::Type::q5_0);
            launch_shape<quant::Type::q5_0, Shape>(queue, args, values, tiles);
        }
        return true;
    });
    STRATA_CHECK(known);
}

}  // namespace strata::cuda
