#include "tests/support/weights.h"

#include <cmath>

#include "base/check.h"

namespace strata::test {

TestWeight make_weight(quant::Type type, std::int64_t rows, std::int64_t cols,
                       const std::vector<float>& values) {
    const quant::TypeInfo& format = quant::info(type);
    STRATA_CHECK(cols % format.block == 0);
    STRATA_CHECK(static_cast<std::int64_t>(values.size()) == rows * cols);
    const std::int64_t row_bytes = cols / format.block * format.block_bytes;
    TestWeight weight{type, rows, cols, {}, values};
    weight.bytes.resize(static_cast<std::size_t>(rows * row_bytes));
    for (std::int64_t r = 0; r < rows; ++r) {
        std::byte* stored = weight.bytes.data() + r * row_bytes;
        format.encode(values.data() + r * cols, stored, cols);
        format.decode(stored, weight.values.data() + r * cols, cols);
    }
    return weight;
}

TestWeight random_weight(Random& random, quant::Type type, std::int64_t rows, std::int64_t cols) {
    const double size = std::sqrt(3.0 / static_cast<double>(cols));
    return make_weight(type, rows, cols, random.floats(rows * cols, -size, size));
}

TestWeight zero_weight(std::int64_t rows, std::int64_t cols) {
    return make_weight(quant::Type::f32, rows, cols,
                       std::vector<float>(static_cast<std::size_t>(rows * cols)));
}

Row product(const TestWeight& weight, const Row& x) {
    STRATA_CHECK(static_cast<std::int64_t>(x.size()) == weight.cols);
    Row y(static_cast<std::size_t>(weight.rows));
    for (std::int64_t r = 0; r < weight.rows; ++r) {
        double sum = 0;
        for (std::int64_t c = 0; c < weight.cols; ++c) {
            sum += static_cast<double>(weight.row(r)[c]) * x[c];
        }
        y[r] = sum;
    }
    return y;
}

}  // namespace strata::test
