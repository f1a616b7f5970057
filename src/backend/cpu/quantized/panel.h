// Kernels for products of weights in types of blocks with rows rounded to eight bits. A panel holds
// some columns of kPanelRows weight rows as integers, row beside row, so that a vector register
// holds the same four columns of all of them: one layout for every type, every instruction set,
// and for one input row as for hundreds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/instructions.h"
#include "quant/integer_form.h"
#include "quant/type.h"

namespace strata::cpu {

inline constexpr int kPanelRows = 16;
inline constexpr int kPanelCols = quant::kSuperBlock;

// Groups and parts as the type's IntegerForm has them, from the panel's first column on.
struct alignas(64) Panel {
    std::uint8_t codes[kPanelCols / 4][kPanelRows][4];         // with the form's offset added
    std::int32_t parts[kPanelCols / 16][kPanelRows];           // where the form has parts
    std::int16_t part_minima[kPanelCols / 32][kPanelRows][2];  // with minima: pairs of parts
    float scales[kPanelCols / 16][kPanelRows];
    float minima[kPanelCols / 32][kPanelRows];
};

// At most kTileRows input rows, their values interleaved, from a panel's first column on.
struct Tile {
    int rows = 0;
    const std::int8_t* codes = nullptr;  // [column / 4][row][4]
    const float* scales = nullptr;       // [group][row]
    const std::int32_t* sums = nullptr;  // [part][row], see Rounded
};

// Where products go: that of tile row t with row r of panel p at data + p * apart + t * stride + r.
struct Sums {
    float* data = nullptr;
    std::int64_t apart = 0;
    std::int64_t stride = 0;
    bool fresh = false;  // what is there counts as 0

    Sums panel(int p) const { return {data + p * apart, apart, stride, fresh}; }
    Sums row(std::int64_t t) const { return {data + t * stride, apart, stride, fresh}; }
};

// Memory that a kernel asks for while it works, `lines` cache lines a step, so that memory is never
// idle.
struct Ahead {
    static constexpr std::int64_t kLine = 64;  // bytes

    const std::byte* at = nullptr;
    std::int64_t lines = 0;

    [[gnu::always_inline]] void ask() {
        const std::byte* end = at + lines * kLine;
        for (; at < end; at += kLine) __builtin_prefetch(at, 0, 2);
    }
};

inline constexpr int kTileRows = 6;

// Rows of the next tile where `left` rows are left: one of the sizes that kernels are made for.
constexpr int tile_rows(std::int64_t left) {
    if (left >= kTileRows) return kTileRows;
    for (const int size : {4, 3, 2}) {
        if (left >= size) return size;
    }
    return 1;
}

// What an instruction set does for one type.
struct Routine {
    // Fills a panel from kPanelRows rows, `stride` bytes apart, of `columns` columns in whole
    // blocks. Memory from `ahead` on is asked for, step by step, so that it is never idle: as many
    // bytes as the rows have, or `asked` a block.
    void (*unpack)(const quant::TypeInfo& type, const std::byte* rows, std::int64_t stride,
                   int columns, const std::byte* ahead, Panel& panel) = nullptr;
    // sums += tile row t . row r of panel p, as op/weight.h says, for one or two panels. Of
    // memory ahead a part is asked for with every group, where the form has no parts.
    void (*multiply)(const quant::IntegerForm& form, const Panel* panels, int count, int columns,
                     const Tile& tile, const Sums& sums, Ahead ahead) = nullptr;
    // The one row of `tile` times the rows of `panels` panels, which follow one another: the bits
    // that unpack and multiply give, without a panel between. Null: there is none.
    void (*multiply_one)(const std::byte* rows, std::int64_t stride, std::int64_t columns,
                         std::int64_t panels, const std::byte* ahead, const Tile& tile,
                         const Sums& sums) = nullptr;
    // Whether the panel's columns are permuted: in each 16, column 4 i + j lies at 4 j + i.
    bool transposed = false;
    // Bytes that unpack asks for with a block of all rows, where multiply is to ask for the rest;
    // 0: unpack asks for all.
    std::int64_t asked = 0;
};

const Routine& find_routine(quant::Type type, Instructions instructions);

// The parts of find_routine.
void unpack_any(const quant::TypeInfo& type, const std::byte* rows, std::int64_t stride,
                int columns, const std::byte* ahead, Panel& panel);
void multiply_scalar(const quant::IntegerForm& form, const Panel* panels, int count, int columns,
                     const Tile& tile, const Sums& sums, Ahead ahead);
void multiply_avx2(const quant::IntegerForm& form, const Panel* panels, int count, int columns,
                   const Tile& tile, const Sums& sums, Ahead ahead);
Routine avx512_routine(quant::Type type);

}  // namespace strata::cpu
