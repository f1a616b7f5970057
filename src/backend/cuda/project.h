// Products of weights with rows: what op/weight.h calls W x, for windows of a few rows.
#pragma once

#include <span>

#include "backend/cuda/queue.h"
#include "op/weight.h"

namespace strata::cuda {

struct Product {
    op::Weight weight;      // [N, K]
    MatrixView<float> out;  // [T, N]
};

// Whether blocks multiply x rounded, as op/weight.h says, or as it is.
enum class Rounding : std::uint8_t { by_type, none };

// out[t] = weight . x[t] for every product, at most 8. x [T, K] is read by all: one launch, and one
// more for each way that x is rounded where it has many values. Rows of `out` depend on the rows of
// x alone, bit for bit, whatever T is.
void project(Queue& queue, MatrixView<const float> x, std::span<const Product> products,
             Rounding rounding = Rounding::by_type);

inline void project(Queue& queue, MatrixView<const float> x, const op::Weight& weight,
                    MatrixView<float> out, Rounding rounding = Rounding::by_type) {
    const Product product{weight, out};
    project(queue, x, {&product, 1}, rounding);
}

// The same where the rows are rounded already, in the one form that all the products read; then x
// need have no memory. `made` null: they are not.
void project_rounded(Queue& queue, MatrixView<const float> x, const std::byte* made,
                     std::span<const Product> products);

inline void project_rounded(Queue& queue, MatrixView<const float> x, const std::byte* made,
                            const op::Weight& weight, MatrixView<float> out) {
    const Product product{weight, out};
    project_rounded(queue, x, made, {&product, 1});
}

}  // namespace strata::cuda
