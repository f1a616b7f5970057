#include "backend/cpu/product.h"

#include "backend/cpu/product_routines.h"

namespace strata::cpu {

const ProductRoutines& product_routines(Instructions instructions) {
    static const ProductRoutines scalar = scalar_products();
#if defined(__x86_64__)
    static const ProductRoutines avx2 = avx2_products();
    static const ProductRoutines avx512 = avx512_products();
    if (instructions == Instructions::avx512) return avx512;
    if (instructions == Instructions::avx2) return avx2;
#endif
    static_cast<void>(instructions);
    return scalar;
}

namespace {

const ProductRoutines& fastest() {
    static const ProductRoutines& chosen = product_routines(fastest_instructions());
    return chosen;
}

}  // namespace

float dot(const float* a, const float* b, std::int64_t n) {
    float result = 0.0f;
    fastest().products({.data = a, .count = 1}, {.data = b, .count = 1}, n, &result, 0, 0);
    return result;
}

void products(const Rows& a, const Rows& b, std::int64_t n, float* out, std::int64_t step_a,
              std::int64_t step_b) {
    fastest().products(a, b, n, out, step_a, step_b);
}

void products(const StoredRows& a, const Rows& b, std::int64_t n, Instructions instructions,
              float* out, std::int64_t step_a, std::int64_t step_b) {
    product_routines(instructions).stored(a, b, n, out, step_a, step_b);
}

void add_rows(const float* weight, const Rows& rows, std::int64_t width, float* out) {
    fastest().add_rows({.data = weight, .count = 1}, rows, width, out, 0);
}

void add_rows(const Weights& weights, const Rows& rows, std::int64_t width, float* out,
              std::int64_t step) {
    fastest().add_rows(weights, rows, width, out, step);
}

}  // namespace strata::cpu
