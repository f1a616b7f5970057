// What each instruction set brings to product.h.
#pragma once

#include <cstdint>

#include "backend/cpu/instructions.h"
#include "backend/cpu/product.h"

namespace strata::cpu {

// Numbers as they are stored, of any alignment.
struct Single {
    std::uint8_t bytes[4];
};
struct Half {
    std::uint8_t bytes[2];
};
struct Bf16 {
    std::uint8_t bytes[2];
};

struct ProductRoutines {
    void (*products)(const Rows& a, const Rows& b, std::int64_t n, float* out, std::int64_t step_a,
                     std::int64_t step_b);
    void (*stored)(const StoredRows& a, const Rows& b, std::int64_t n, float* out,
                   std::int64_t step_a, std::int64_t step_b);
    void (*add_rows)(const Weights& weights, const Rows& rows, std::int64_t width, float* out,
                     std::int64_t step);
};

ProductRoutines scalar_products();
ProductRoutines avx2_products();
ProductRoutines avx512_products();

const ProductRoutines& product_routines(Instructions instructions);

}  // namespace strata::cpu
