// Bounded by reading the weights where there are few input rows, by multiply-adds where there are
// many. Each thread takes a contiguous range of the weight rows of all projections.
#include "backend/cpu/project.h"

#include <algorithm>

#include "base/check.h"
#include "quant/type.h"

namespace strata::cpu {
namespace {

void project_rows(const Projection& one, MatrixView<const float> x, std::int64_t begin,
                  std::int64_t end, float* buffer) {
    const Rows inputs{.data = x.data, .stride = x.cols, .count = x.rows};
    for (std::int64_t r = begin; r < end; r += kRowTile) {
        Rows weights = decode_rows(one.weight, r, std::min(kRowTile, end - r), buffer);
        weights.data += one.first_column;
        products(weights, inputs, x.cols, one.out.data + r, 1, one.out.cols);
    }
}

}  // namespace

void project(Queue& queue, MatrixView<const float> x, std::initializer_list<Projection> all) {
    std::int64_t rows = 0;
    std::int64_t widest = 0;
    for (const Projection& one : all) {
        STRATA_CHECK(one.first_column + x.cols <= one.weight.cols);
        STRATA_CHECK(one.out.rows == x.rows && one.out.cols == one.weight.rows);
        rows += one.weight.rows;
        widest = std::max(widest, one.weight.cols);
    }
    const std::int64_t buffer_size = kRowTile * widest;
    float* buffers = queue.take<float>(queue.threads() * buffer_size);
    queue.split(rows, widest * (x.rows + 2), [&](std::int64_t begin, std::int64_t end, int thread) {
        std::int64_t first = 0;
        for (const Projection& one : all) {
            const std::int64_t last = first + one.weight.rows;
            project_rows(one, x, std::max(begin, first) - first, std::min(end, last) - first,
                         buffers + thread * buffer_size);
            first = last;
        }
    });
}

Rows decode_rows(const op::Weight& weight, std::int64_t first, std::int64_t count, float* buffer) {
    const std::byte* data = weight.row(first);
    constexpr std::int64_t kSize = sizeof(float);
    if (weight.type == quant::Type::f32 && weight.row_bytes % kSize == 0 &&
        reinterpret_cast<std::uintptr_t>(data) % alignof(float) == 0) {
        return {.data = reinterpret_cast<const float*>(data),
                .stride = weight.row_bytes / kSize,
                .count = count};
    }
    const auto decode = quant::info(weight.type).decode;
    for (std::int64_t r = 0; r < count; ++r) {
        decode(data + r * weight.row_bytes, buffer + r * weight.cols, weight.cols);
    }
    return {.data = buffer, .stride = weight.cols, .count = count};
}

void decode_row(const op::Weight& table, std::int64_t row, float* to) {
    STRATA_CHECK(row >= 0 && row < table.rows);
    quant::info(table.type).decode(table.row(row), to, table.cols);
}

bool has_shape(const op::Weight& weight, std::int64_t rows, std::int64_t cols) {
    const quant::TypeInfo& type = quant::info(weight.type);
    return weight.data != nullptr && weight.rows == rows && weight.cols == cols &&
           cols % type.block == 0 && weight.row_bytes == cols / type.block * type.block_bytes;
}

}  // namespace strata::cpu
