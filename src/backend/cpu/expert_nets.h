// The matrices of experts, found in a table of addresses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "op/experts.h"
#include "op/weight.h"

namespace strata::cpu {

// The matrices of one expert, or of the shared one.
struct Net {
    op::Weight gate;
    op::Weight up;
    op::Weight down;
};

// Whole rows at `data`, one after another.
inline op::Weight weight_at(const std::byte* data, quant::Type type, std::int64_t rows,
                            std::int64_t cols, float factor) {
    const quant::TypeInfo& info = quant::info(type);
    return {.data = data,
            .type = type,
            .rows = rows,
            .cols = cols,
            .row_bytes = cols / info.block * info.block_bytes,
            .factor = factor};
}

// 1 without a table.
inline float factor_of(const float* factors, std::int32_t expert) {
    return factors == nullptr ? 1.0f : factors[expert];
}

// Of a routed expert.
inline Net net_of(const op::Experts& args, std::int32_t expert) {
    const op::ExpertTable& table = args.experts;
    const std::int64_t width = args.x.cols;
    return {.gate = weight_at(table.gate_at[expert], table.gate_type, table.hidden, width,
                              factor_of(table.gate_factors, expert)),
            .up = weight_at(table.up_at[expert], table.up_type, table.hidden, width,
                            factor_of(table.up_factors, expert)),
            .down = weight_at(table.down_at[expert], table.down_type, width, table.hidden,
                              factor_of(table.down_factors, expert))};
}

}  // namespace strata::cpu
