// Bounded by reading the weights where there are few input rows, by multiply-adds where there are
// many.
#include "backend/cpu/operand.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/project.h"

namespace strata::cpu {
namespace {

constexpr std::int64_t kLine = 64;

void prefetch(const std::byte* from, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(from + at, 0, 2);
}

void multiply_rounded(const op::Weight& weight, std::int64_t first, std::int64_t count,
                      const Operand& x, Instructions instructions, std::byte* copy, float* out) {
    const quant::TypeInfo& type = quant::info(weight.type);
    const Routine routine = find_routine(weight.type, instructions);
    const std::int64_t whole = kPanelRows * weight.row_bytes;
    const std::byte* rows = weight.row(first);
    const std::byte* next = rows + whole;
    if (count < kPanelRows) {
        std::memcpy(copy, rows, static_cast<std::size_t>(count * weight.row_bytes));
        std::memset(copy + count * weight.row_bytes, 0,
                    static_cast<std::size_t>((kPanelRows - count) * weight.row_bytes));
        rows = copy;
    }
    rows += x.first_column / type.block * type.block_bytes;
    std::fill_n(out, x.rounded.rows * kPanelRows, 0.0f);
    Panel panel;
    for (std::int64_t col = 0; col < x.rounded.cols; col += kPanelCols) {
        const auto columns =
            static_cast<int>(std::min<std::int64_t>(kPanelCols, x.rounded.cols - col));
        const std::int64_t bytes = columns / type.block * type.block_bytes;
        prefetch(next + kPanelRows * (col / type.block * type.block_bytes), kPanelRows * bytes);
        routine.unpack(type, rows, weight.row_bytes, columns, panel);
        rows += bytes;
        for (std::int64_t t = 0; t < x.rounded.rows;) {
            const Tile tile = x.rounded.tile(t, col);
            routine.multiply(*type.integers, panel, columns, tile, out + t * kPanelRows);
            t += tile.rows;
        }
    }
}

void multiply_plain(const op::Weight& weight, std::int64_t first, std::int64_t count,
                    const Operand& x, Instructions instructions, float* decoded, float* out) {
    const std::byte* data = weight.row(first);
    if (!rounds_input(weight.type)) {
        const quant::TypeInfo& type = quant::info(weight.type);
        const StoredRows rows{.data = data + x.first_column * type.block_bytes,
                              .type = weight.type,
                              .stride = weight.cols,
                              .count = count};
        products(rows, x.plain, x.cols, instructions, out, 1, kPanelRows);
        return;
    }
    Rows rows = decode_rows(weight, first, count, decoded);
    rows.data += x.first_column;
    const StoredRows decoded_rows{.data = rows.data, .stride = rows.stride, .count = count};
    products(decoded_rows, x.plain, x.cols, instructions, out, 1, kPanelRows);
}

}  // namespace

bool rounds_input(quant::Type type) { return quant::info(type).integers != nullptr; }

Operand make_operand(Queue& queue, MatrixView<const float> x, std::int64_t first_column,
                     quant::Type type, bool exact) {
    Operand operand{.first_column = first_column, .cols = x.cols};
    if (exact || !rounds_input(type)) {
        operand.plain = {.data = x.data, .stride = x.cols, .count = x.rows};
    } else {
        operand.rounded = round_rows(queue, x, first_column, type);
    }
    return operand;
}

Workspaces::Workspaces(Queue& queue, std::int64_t row_bytes, std::int64_t cols,
                       std::int64_t input_rows)
    : decoded(queue.matrix(queue.threads(), kPanelRows * cols)),
      rows{queue.take<std::byte>(queue.threads() * kPanelRows * row_bytes), queue.threads(),
           kPanelRows * row_bytes},
      sums(queue.matrix(queue.threads(), kPanelRows * input_rows)) {}

Workspace Workspaces::of(int thread) const {
    return {decoded.row(thread), rows.row(thread), sums.row(thread)};
}

void multiply_rows(const op::Weight& weight, std::int64_t first, std::int64_t count,
                   const Operand& x, Instructions instructions, const Workspace& workspace,
                   float* out) {
    if (x.is_rounded()) {
        multiply_rounded(weight, first, count, x, instructions, workspace.rows, out);
    } else {
        multiply_plain(weight, first, count, x, instructions, workspace.decoded, out);
    }
}

}  // namespace strata::cpu
