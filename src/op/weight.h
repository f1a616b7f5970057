// Weight matrices as the model file stores them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/type.h"

namespace strata::op {

// `rows` rows of `cols` values in blocks of `type`, row after row without padding, in memory that
// the op's device reads. W x is the product with W stored [rows = out, cols = in].
struct Weight {
    const std::byte* data = nullptr;
    quant::Type type = quant::Type::f32;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t row_bytes = 0;

    const std::byte* row(std::int64_t r) const { return data + r * row_bytes; }
    bool empty() const { return data == nullptr; }
};

// Row vectors of F32: norm gains, biases, decays.
using Gain = const float*;

}  // namespace strata::op
