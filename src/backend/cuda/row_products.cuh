// Products of a few weight rows with a few input rows, by lanes of one warp. The sum of a product:
// lane l of L takes units l, l + L, ..., one after the other, and the lanes' sums are added in
// halves. L follows from the columns alone, so neither the rows that are taken together nor the
// launch changes a bit.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/block_units.cuh"
#include "backend/cuda/operand.cuh"
#include "backend/cuda/staging.cuh"

namespace strata::cuda {

// Of one lane; `row`, `rows`, `x` and `out` are the same in lanes that share a product.
struct RowTask {
    const std::byte* row;  // the first of the weight rows
    int rows;              // of those taken together that are there, at least 1
    int row_bytes;
    int cols;   // of the weight, in plain formats of x
    int first;  // this lane's first unit
    int last;   // after the last unit
    int lanes;  // L
    int align;  // of the rows: a power of two up to 16
    const std::byte* x;
    std::int64_t x_bytes;  // of a row of x
    const int* x_rows;     // which rows of x; null: 0, 1, ...
    int x_count;           // at least 1
    const unsigned* book;  // the codebook, of formats that have one
    float factor;          // of the products
    float* out;            // of input row t and weight row r: out[t * out_stride + r]
    std::int64_t out_stride;
    bool store;  // whether these lanes do

    __device__ const std::byte* row_at(int r) const {
        return row + std::int64_t{r < rows ? r : rows - 1} * row_bytes;
    }
    __device__ const std::byte* x_at(int t) const {
        const int own = t < x_count ? t : x_count - 1;
        return x + (x_rows == nullptr ? own : x_rows[own]) * x_bytes;
    }
};

// Weight rows that a lane takes together: as many bytes on their way as its registers hold.
constexpr int rows_together(quant::Type type, int tile) {
    const BlockFields fields = block_fields(type);
    const bool small = fields.values > 0 && fields.bytes * kUnit / fields.values <= 20;
    return small && tile == 1 ? 4 : 2;
}

template <int kTile, int kRows>
__device__ inline void store_sums(const RowTask& task, float (&sums)[kRows][kTile]) {
    for (int r = 0; r < kRows; ++r) {
        for (int t = 0; t < kTile; ++t) {
            float sum = sums[r][t];
            for (int by = task.lanes / 2; by > 0; by /= 2) {
                sum += __shfl_xor_sync(kAllLanes, sum, by);
            }
            if (task.store && r < task.rows && t < task.x_count) {
                task.out[t * task.out_stride + r] = task.factor == 1.0f ? sum : sum * task.factor;
            }
        }
    }
}

// sum + the part of a unit, exact up to the scales.
template <typename Own>
__device__ inline float add_unit(const Unit& weight, const int (&codes)[8], int sums, float a,
                                 float sum) {
    int low = 0;
    int high = 0;
    for (int i = 0; i < 4; ++i) {
        low = __dp4a(weight.codes[i], codes[i], low);
        high = __dp4a(weight.codes[i + 4], codes[i + 4], high);
    }
    if constexpr (Own::kOffset != 0) {
        low -= Own::kOffset * low_sum(sums);
        high -= Own::kOffset * high_sum(sums);
    }
    if constexpr (Own::kHalves) {
        sum = __fmaf_rn(static_cast<float>(low), weight.scale[0] * a, sum);
        sum = __fmaf_rn(static_cast<float>(high), weight.scale[1] * a, sum);
    } else {
        sum = __fmaf_rn(static_cast<float>(low + high), weight.scale[0] * a, sum);
    }
    if constexpr (Own::kMinima) {
        sum = __fmaf_rn(static_cast<float>(low_sum(sums)), -(weight.minimum[0] * a), sum);
        sum = __fmaf_rn(static_cast<float>(high_sum(sums)), -(weight.minimum[1] * a), sum);
    }
    return sum;
}

template <typename Own, int kTile, int kRows>
__device__ inline void add_units(const RowTask& task, const typename Own::Raw (&raw)[kRows],
                                 int unit, float (&sums)[kRows][kTile]) {
    Unit weight[kRows];
    for (int r = 0; r < kRows; ++r) Own::decode(raw[r], unit, task.book, weight[r]);
    for (int t = 0; t < kTile; ++t) {
        const RoundedRow x{task.x_at(t), task.cols / kUnit};
        int codes[8];
        x.codes(unit, codes);
        const float a = x.scale(unit);
        const int own = Own::kOffset != 0 || Own::kMinima ? x.sums(unit) : 0;
        for (int r = 0; r < kRows; ++r) {
            sums[r][t] = add_unit<Own>(weight[r], codes, own, a, sums[r][t]);
        }
    }
}

// Rounded rows; the units of two steps are on their way at once.
template <quant::Type kType, int kTile, int kRows>
STRATA_NOINLINE __device__ void multiply_rounded(const RowTask& task) {
    using Own = BlockUnits<kType>;
    constexpr int kBlock = block_fields(kType).values;
    float sums[kRows][kTile] = {};
    for (int unit = task.first; unit < task.last; unit += 2 * task.lanes) {
        typename Own::Raw raw[2][kRows];
        const bool second = unit + task.lanes < task.last;
        for (int i = 0; i < 2; ++i) {
            for (int r = 0; r < kRows; ++r) {
                const Planes<kType> row{task.row_at(r), task.cols / kBlock, task.align};
                if (i == 0 || second) Own::load(row, unit + i * task.lanes, raw[i][r]);
            }
        }
        add_units<Own, kTile, kRows>(task, raw[0], unit, sums);
        if (second) add_units<Own, kTile, kRows>(task, raw[1], unit + task.lanes, sums);
    }
    store_sums(task, sums);
}

// A piece of eight columns in a format without blocks.
template <quant::Type kType>
struct Piece {
    static constexpr int kWords = kType == quant::Type::f32 ? 8 : 4;
    unsigned words[kWords];

    // Columns past the end are 0.
    __device__ void load(const std::byte* row, int piece, int cols, int align) {
        constexpr int kBytes = kWords * 4 / kPiece;
        const std::byte* from = row + std::int64_t{piece} * kWords * 4;
        const int here = cols - piece * kPiece;
        if (here >= kPiece) return load_words<kWords>(from, align, words);
        for (unsigned& word : words) word = 0;
#pragma unroll
        for (int i = 0; i < kPiece * kBytes; ++i) {
            if (i < here * kBytes) words[i / 4] |= load_byte(from + i) << i % 4 * 8;
        }
    }
    __device__ float at(int i) const {
        if constexpr (kType == quant::Type::f32) return __uint_as_float(words[i]);
        const auto half = static_cast<std::uint16_t>(words[i / 2] >> i % 2 * 16 & 0xffffu);
        return kType == quant::Type::f16 ? half_to_float(half) : bfloat_to_float(half);
    }
};

__device__ inline void plain_piece(const std::byte* x, int piece, int pieces, float (&to)[kPiece]) {
    const auto* four = reinterpret_cast<const float4*>(x);
    spread_fours(four[piece], four[pieces + piece], to);
}

// Plain rows and formats without blocks; units are pieces.
template <quant::Type kType, int kTile, int kRows>
STRATA_NOINLINE __device__ void multiply_plain(const RowTask& task) {
    constexpr int kSteps = kType == quant::Type::f32 ? 2 : 4;
    const int pieces = (task.cols + kPiece - 1) / kPiece;
    float sums[kRows][kTile] = {};
    for (int piece = task.first; piece < task.last; piece += kSteps * task.lanes) {
        Piece<kType> weight[kSteps][kRows];
        for (int i = 0; i < kSteps; ++i) {
            const int own = piece + i * task.lanes;
            for (int r = 0; r < kRows && own < task.last; ++r) {
                weight[i][r].load(task.row_at(r), own, task.cols, task.align);
            }
        }
        for (int i = 0; i < kSteps; ++i) {
            const int own = piece + i * task.lanes;
            if (own >= task.last) break;
            for (int t = 0; t < kTile; ++t) {
                float x[kPiece];
                plain_piece(task.x_at(t), own, pieces, x);
                for (int r = 0; r < kRows; ++r) {
                    for (int j = 0; j < kPiece; ++j) {
                        sums[r][t] = __fmaf_rn(weight[i][r].at(j), x[j], sums[r][t]);
                    }
                }
            }
        }
    }
    store_sums(task, sums);
}

// Plain rows and blocks, which are decoded: for the few products that round nothing.
template <quant::Type kType>
STRATA_NOINLINE __device__ void multiply_exact(const RowTask& task) {
    using Own = BlockUnits<kType>;
    constexpr int kBlock = block_fields(kType).values;
    const Planes<kType> row{task.row, task.cols / kBlock, task.align};
    float sums[1][1] = {};
    for (int unit = task.first; unit < task.last; unit += task.lanes) {
        typename Own::Raw raw;
        Own::load(row, unit, raw);
        Unit weight;
        Own::decode(raw, unit, task.book, weight);
        for (int p = 0; p < 4; ++p) {
            float x[kPiece];
            plain_piece(task.x_at(0), unit * 4 + p, task.cols / kPiece, x);
            for (int j = 0; j < kPiece; ++j) {
                const int c = p * kPiece + j;
                sums[0][0] = __fmaf_rn(unit_value<Own>(weight, c), x[j], sums[0][0]);
            }
        }
    }
    store_sums(task, sums);
}

// The products of one task with up to kTile input rows, kMost being the most that its kernel takes
// at once. All of a warp call it.
template <int kTile, int kMost>
__device__ inline void multiply_rows(quant::Type type, bool exact, const RowTask& task) {
    switch (type) {
#define STRATA_CASE(name)                                          \
    case quant::Type::name:                                        \
        if (exact) return multiply_exact<quant::Type::name>(task); \
        return multiply_rounded<quant::Type::name, kTile,          \
                                rows_together(quant::Type::name, kMost)>(task);
        STRATA_BLOCK_TYPES(STRATA_CASE)
#undef STRATA_CASE
        case quant::Type::f32:
            return multiply_plain<quant::Type::f32, kTile, 2>(task);
        case quant::Type::f16:
            return multiply_plain<quant::Type::f16, kTile, 2>(task);
        case quant::Type::bf16:
            return multiply_plain<quant::Type::bf16, kTile, 2>(task);
        case quant::Type::i64:
            return;
    }
}

}  // namespace strata::cuda
