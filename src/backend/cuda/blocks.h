// How blocks of every format lie in device memory: matrices that are multiplied have the bytes of
// each row in planes, all blocks' first field, then all blocks' second one, ..., so that
// neighbouring lanes of a kernel read neighbouring bytes. A row keeps its size; rows of formats
// without blocks stay as they are.
#pragma once

#include <cstdint>

#include "quant/type.h"

namespace strata::cuda {

inline constexpr int kFieldsMax = 5;

// `bytes` bytes of a block, from `offset` on.
struct Field {
    int offset = 0;
    int bytes = 0;
};

// The fields of a block in the order of their planes: codes first, and none in the way of another's
// alignment. No fields: a format without blocks.
struct BlockFields {
    int values = 0;  // of a block
    int bytes = 0;
    Field field[kFieldsMax] = {};

    // Bytes of a block that lie in the planes before this one.
    constexpr int before(int plane) const {
        int sum = 0;
        for (int i = 0; i < plane; ++i) sum += field[i].bytes;
        return sum;
    }
};

constexpr BlockFields block_fields(quant::Type type) {
    switch (type) {
        case quant::Type::q8_0:
            return {32, 34, {{2, 16}, {18, 16}, {0, 2}}};
        case quant::Type::q4_0:
        case quant::Type::iq4_nl:
            return {32, 18, {{2, 16}, {0, 2}}};
        case quant::Type::q5_0:
            return {32, 22, {{6, 16}, {2, 4}, {0, 2}}};
        case quant::Type::q5_1:
            return {32, 24, {{8, 16}, {4, 4}, {0, 2}, {2, 2}}};
        case quant::Type::mxfp4:
            return {32, 17, {{1, 16}, {0, 1}}};
        case quant::Type::nvfp4:
            return {64, 36, {{4, 32}, {0, 4}}};
        case quant::Type::q2_0:
            return {64, 18, {{2, 16}, {0, 2}}};
        case quant::Type::q2_k:
            return {256, 84, {{16, 64}, {0, 16}, {80, 2}, {82, 2}}};
        case quant::Type::q3_k:
            return {256, 110, {{32, 64}, {0, 32}, {96, 12}, {108, 2}}};
        case quant::Type::q4_k:
            return {256, 144, {{16, 128}, {4, 12}, {0, 2}, {2, 2}}};
        case quant::Type::q5_k:
            return {256, 176, {{48, 128}, {16, 32}, {4, 12}, {0, 2}, {2, 2}}};
        case quant::Type::q6_k:
            return {256, 210, {{0, 128}, {128, 64}, {192, 16}, {208, 2}}};
        case quant::Type::iq1_m:
            return {256, 56, {{0, 32}, {32, 16}, {48, 8}}};
        case quant::Type::iq2_xxs:
            return {256, 66, {{2, 64}, {0, 2}}};
        case quant::Type::iq2_xs:
            return {256, 74, {{2, 64}, {66, 8}, {0, 2}}};
        case quant::Type::iq2_s:
            return {256, 82, {{2, 32}, {34, 32}, {66, 8}, {74, 8}, {0, 2}}};
        case quant::Type::iq3_xxs:
            return {256, 98, {{2, 64}, {66, 32}, {0, 2}}};
        case quant::Type::iq3_s:
            return {256, 110, {{2, 64}, {74, 32}, {66, 8}, {106, 4}, {0, 2}}};
        case quant::Type::iq4_xs:
            return {256, 136, {{8, 128}, {4, 4}, {2, 2}, {0, 2}}};
        case quant::Type::f32:
        case quant::Type::f16:
        case quant::Type::bf16:
        case quant::Type::i64:
            break;
    }
    return {};
}

constexpr bool has_blocks(quant::Type type) { return block_fields(type).values > 0; }

}  // namespace strata::cuda
