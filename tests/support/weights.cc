#include "tests/support/weights.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "quant/half.h"

namespace strata::test {

TestWeight make_weight(quant::Type type, std::int64_t rows, std::int64_t cols,
                       const std::vector<float>& values) {
    const quant::TypeInfo& format = quant::info(type);
    STRATA_CHECK(cols % format.block == 0);
    STRATA_CHECK(static_cast<std::int64_t>(values.size()) == rows * cols);
    const std::int64_t row_bytes = cols / format.block * format.block_bytes;
    TestWeight weight{type, rows, cols, {}, values, 1};
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

namespace {

// Where a block keeps its f16 numbers.
std::vector<std::size_t> halves_of(quant::Type type) {
    switch (type) {
        case quant::Type::q2_k:
            return {80, 82};
        case quant::Type::q3_k:
            return {108};
        case quant::Type::q6_k:
            return {208};
        case quant::Type::q5_1:
        case quant::Type::q4_k:
        case quant::Type::q5_k:
            return {0, 2};
        case quant::Type::iq1_m:
        case quant::Type::mxfp4:
        case quant::Type::nvfp4:
            return {};
        default:
            return {0};
    }
}

// Random bytes with scales that are numbers, none much larger than the others.
void fill_block(Random& random, quant::Type type, std::byte* block, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; ++i) block[i] = std::byte(random.bits() & 255);
    const auto random_half = [&] {
        const double size = random.uniform(-1, 1);
        return quant::f32_to_f16(static_cast<float>(size * std::abs(size)));
    };
    for (const std::size_t at : halves_of(type)) {
        const std::uint16_t half = random_half();
        std::memcpy(block + at, &half, sizeof(half));
    }
    if (type == quant::Type::mxfp4) block[0] = std::byte(random.integer(120, 126));
    if (type == quant::Type::nvfp4) {
        for (int i = 0; i < 4; ++i) block[i] = std::byte(random.integer(0, 70));
    }
    if (type == quant::Type::iq1_m) {  // a quarter of the f16 above each word's three scales
        const std::uint16_t half = random_half();
        for (int i = 0; i < 4; ++i) {
            std::byte& byte = block[48 + 2 * i + 1];
            byte = (byte & std::byte{15}) | std::byte((half >> (4 * i) & 15) << 4);
        }
    }
}

}  // namespace

TestWeight random_blocks(Random& random, quant::Type type, std::int64_t rows, std::int64_t cols) {
    const quant::TypeInfo& format = quant::info(type);
    STRATA_CHECK(cols % format.block == 0);
    const std::int64_t blocks = rows * cols / format.block;
    TestWeight weight{type, rows, cols, {}, {}, 1};
    weight.bytes.resize(static_cast<std::size_t>(blocks * format.block_bytes));
    weight.values.resize(static_cast<std::size_t>(rows * cols));
    for (std::int64_t b = 0; b < blocks; ++b) {
        fill_block(random, type, weight.bytes.data() + b * format.block_bytes, format.block_bytes);
    }
    format.decode(weight.bytes.data(), weight.values.data(), rows * cols);
    return weight;
}

TestWeight zero_weight(std::int64_t rows, std::int64_t cols) {
    return make_weight(quant::Type::f32, rows, cols,
                       std::vector<float>(static_cast<std::size_t>(rows * cols)));
}

namespace {

// x in groups of `group`, each rounded to 255 levels as op/weight.h says.
Row rounded(const Row& x, std::size_t group) {
    Row result;
    for (std::size_t first = 0; first < x.size(); first += group) {
        float largest = 0;
        for (std::size_t i = first; i < first + group; ++i) {
            const float magnitude = std::fabs(static_cast<float>(x[i]));
            if (!(magnitude <= largest)) largest = magnitude;
        }
        const float scale = std::isfinite(largest) ? largest / 127.0f : std::nanf("");
        const float inverse = 127.0f / largest;
        for (std::size_t i = first; i < first + group; ++i) {
            const float level = std::nearbyint(static_cast<float>(x[i]) * inverse);
            const bool none = std::isfinite(largest) && !std::isfinite(inverse);
            result.push_back(none ? 0.0 : static_cast<double>(scale) * level);
        }
    }
    return result;
}

std::size_t input_group(quant::Type type) {
    const int block = quant::info(type).block;
    return static_cast<std::size_t>(type == quant::Type::nvfp4 ? 32 : block);
}

}  // namespace

namespace {

double to_bf16(double value) {
    return quant::bf16_to_f32(quant::f32_to_bf16(static_cast<float>(value)));
}

Row bf16_product(const TestWeight& weight, Row x) {
    for (double& value : x) value = to_bf16(value);
    TestWeight rounded = weight;
    for (float& value : rounded.values) value = static_cast<float>(to_bf16(value));
    return exact_product(rounded, x);
}

}  // namespace

Row product(const TestWeight& weight, const Row& x) {
    if (PromptRoute::on()) return bf16_product(weight, x);
    if (quant::info(weight.type).block == 1) return exact_product(weight, x);
    return exact_product(weight, rounded(x, input_group(weight.type)));
}

Row exact_product(const TestWeight& weight, const Row& x) {
    STRATA_CHECK(static_cast<std::int64_t>(x.size()) == weight.cols);
    Row y(static_cast<std::size_t>(weight.rows));
    for (std::int64_t r = 0; r < weight.rows; ++r) {
        double sum = 0;
        for (std::int64_t c = 0; c < weight.cols; ++c) {
            sum += static_cast<double>(weight.row(r)[c]) * x[c];
        }
        y[r] = sum * weight.factor;
    }
    return y;
}

}  // namespace strata::test
