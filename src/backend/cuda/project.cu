#include "backend/cuda/project.h"

#include <algorithm>

#include "backend/cuda/products.h"
#include "base/check.h"

namespace strata::cuda {
namespace {

// Rows of x that one launch takes.
constexpr std::int64_t kRowsMax = 64;

void project_all(Queue& queue, MatrixView<const float> x, const std::byte* made,
                 std::span<const Product> products, Rounding rounding) {
    STRATA_CHECK(products.size() <= kPartsMax);
    for (std::int64_t row = 0; row < x.rows; row += kRowsMax) {
        Products all;
        all.x_rows = static_cast<int>(std::min(kRowsMax, x.rows - row));
        all.x = {.data = x.data == nullptr ? nullptr : x.row(row),
                 .stride = x.cols,
                 .cols = static_cast<int>(x.cols)};
        for (const Product& product : products) {
            STRATA_CHECK(product.weight.cols == x.cols);
            STRATA_CHECK(product.out.rows == x.rows && product.out.cols == product.weight.rows);
            Part& part = all.part[all.parts++];
            part = make_part(product.weight, all.x_rows, rounding == Rounding::none);
            part.out = product.out.row(row);
            part.out_stride = product.out.cols;
            if (made != nullptr) part.made = made + row * operand_bytes(part.group, x.cols);
        }
        run_products(queue, all);
    }
}

}  // namespace

void project(Queue& queue, MatrixView<const float> x, std::span<const Product> products,
             Rounding rounding) {
    project_all(queue, x, nullptr, products, rounding);
}

void project_rounded(Queue& queue, MatrixView<const float> x, const std::byte* made,
                     std::span<const Product> products) {
    project_all(queue, x, made, products, Rounding::by_type);
}

}  // namespace strata::cuda
