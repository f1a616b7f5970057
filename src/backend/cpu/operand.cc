// Bounded by reading the weights where there are few input rows, by multiply-adds where there are
// many.
#include "backend/cpu/operand.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/project.h"

namespace strata::cpu {
namespace {

// The rows of one panel, `offset` bytes from their starts; those past `count`, which must be there
// for the kernels, are zeros in `copy`.
const std::byte* panel_rows(const op::Weight& weight, std::int64_t first, std::int64_t count,
                            std::int64_t offset, std::byte* copy) {
    const std::byte* rows = weight.row(first);
    if (count < kPanelRows) {
        const std::int64_t bytes = count * weight.row_bytes;
        std::memcpy(copy, rows, static_cast<std::size_t>(bytes));
        std::memset(copy + bytes, 0,
                    static_cast<std::size_t>(kPanelRows * weight.row_bytes - bytes));
        rows = copy;
    }
    return rows + offset;
}

void multiply_panels(const Routine& routine, const quant::IntegerForm& form, const Panel* panels,
                     int count, int columns, const TilesAt& tiles, std::int64_t input_rows,
                     const Sums& sums) {
    for (std::int64_t t = 0; t < input_rows;) {
        const Tile tile = tiles.from(t);
        for (int p = 0; p < count; p += 2) {
            routine.multiply(form, panels + p, std::min(count - p, 2), columns, tile,
                             sums.panel(p).row(t));
        }
        t += tile.rows;
    }
}

void multiply_rounded(const op::Weight& weight, std::int64_t first, std::int64_t count,
                      const Operand& x, Instructions instructions, const Workspace& workspace,
                      Sums sums, const std::byte* next) {
    const quant::TypeInfo& type = quant::info(weight.type);
    const Routine& routine = find_routine(weight.type, instructions);
    const auto bytes_of = [&](std::int64_t columns) {
        return groups_in(columns, type.block) * type.block_bytes;
    };
    const std::int64_t offset = bytes_of(x.first_column);
    const std::byte* rows[kPanelsMax];
    int used = 0;
    for (std::int64_t i = 0; i < count; i += kPanelRows, ++used) {
        const std::int64_t own = std::min<std::int64_t>(count - i, kPanelRows);
        rows[used] = panel_rows(weight, first + i, own, offset, workspace.rows);
    }
    if (next == nullptr) next = weight.row(first + count);
    if (x.rounded.rows == 1 && routine.multiply_one != nullptr) {
        const Tile row{1, reinterpret_cast<const std::int8_t*>(x.rounded.codes), x.rounded.scales,
                       x.rounded.sums};
        const std::int64_t bytes = kPanelRows * bytes_of(x.rounded.cols);
        for (int p = 0; p < used; ++p, next += bytes) {
            routine.multiply_one(rows[p], weight.row_bytes, x.rounded.cols, next, row,
                                 sums.panel(p).data);
        }
        return;
    }
    Panel panels[kPanelsMax];
    TilesAt tiles(x.rounded);
    for (std::int64_t col = 0; col < x.rounded.cols; col += kPanelCols, tiles.next_panel()) {
        sums.fresh = col == 0;
        const auto columns =
            static_cast<int>(std::min<std::int64_t>(kPanelCols, x.rounded.cols - col));
        const std::int64_t bytes = bytes_of(columns);
        for (int p = 0; p < used; ++p) {
            routine.unpack(type, rows[p], weight.row_bytes, columns, next, panels[p]);
            rows[p] += bytes;
            next += kPanelRows * bytes;
        }
        multiply_panels(routine, *type.integers, panels, used, columns, tiles, x.rounded.rows,
                        sums);
    }
}

StoredRows stored_rows(const op::Weight& weight, std::int64_t first, std::int64_t count,
                       const Operand& x) {
    const std::int64_t bytes = x.first_column * quant::info(weight.type).block_bytes;
    return {.data = weight.row(first) + bytes,
            .type = weight.type,
            .stride = weight.cols,
            .count = count};
}

// Null where few rows, or the instructions, make it not worth the while.
const float* pack_rows(Queue& queue, const Rows& x, std::int64_t cols) {
    if (x.count < kManyInputRows || queue.instructions() != Instructions::avx512) return nullptr;
    float* packed = queue.take<float>(packed_size(x.count, cols));
    const std::int64_t tiles = (x.count + kPackedTile - 1) / kPackedTile;
    queue.split(tiles, kPackedTile * cols, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t tile = begin; tile < end; ++tile) pack_tile(x, tile, cols, packed);
    });
    return packed;
}

// At most one panel.
void multiply_plain(const op::Weight& weight, std::int64_t first, std::int64_t count,
                    const Operand& x, Instructions instructions, float* decoded, float* out) {
    if (!rounds_input(weight.type)) {
        const StoredRows rows = stored_rows(weight, first, count, x);
        products(rows, x.plain, x.cols, instructions, out, 1, kPanelRows);
        return;
    }
    Rows rows = decode_rows(weight, first, count, decoded);
    rows.data += x.first_column;
    const StoredRows decoded_rows{.data = rows.data, .stride = rows.stride, .count = count};
    products(decoded_rows, x.plain, x.cols, instructions, out, 1, kPanelRows);
}

void multiply_stored(const op::Weight& weight, std::int64_t first, std::int64_t count,
                     const Operand& x, Instructions instructions, const Workspace& workspace,
                     float* out, const std::byte* next) {
    if (x.is_rounded()) {
        multiply_rounded(weight, first, count, x, instructions, workspace,
                         {out, x.rows() * kPanelRows, kPanelRows}, next);
        return;
    }
    // A panel that would be mostly empty takes longer than its rows one by one.
    constexpr std::int64_t kPackedRowsMin = 12;
    if (x.packed != nullptr && count >= kPackedRowsMin) {
        for (std::int64_t i = 0; i < count; i += kPackedPanel) {
            const std::int64_t own = std::min<std::int64_t>(count - i, kPackedPanel);
            packed_products(stored_rows(weight, first + i, own, x), x.packed, x.rows(), x.cols,
                            workspace.decoded, out + place_of(i, x.rows()));
        }
        return;
    }
    for (std::int64_t i = 0; i < count; i += kPanelRows) {
        multiply_plain(weight, first + i, std::min<std::int64_t>(count - i, kPanelRows), x,
                       instructions, workspace.decoded, out + place_of(i, x.rows()));
    }
}

}  // namespace

bool rounds_input(quant::Type type) { return quant::info(type).integers != nullptr; }

Operand make_operand(Queue& queue, MatrixView<const float> x, std::int64_t first_column,
                     quant::Type type, bool exact) {
    Operand operand{.first_column = first_column, .cols = x.cols};
    if (exact || !rounds_input(type)) {
        operand.plain = {.data = x.data, .stride = x.cols, .count = x.rows};
        if (!exact || !rounds_input(type)) operand.packed = pack_rows(queue, operand.plain, x.cols);
    } else {
        operand.rounded = round_rows(queue, x, first_column, type);
    }
    return operand;
}

Workspaces::Workspaces(Queue& queue, std::int64_t row_bytes, std::int64_t cols, std::int64_t sums)
    : decoded(queue.matrix(queue.threads(), kPackedPanel * packed_columns(cols))),
      rows{queue.take<std::byte>(queue.threads() * kPanelRows * row_bytes), queue.threads(),
           kPanelRows * row_bytes},
      all_sums(queue.matrix(queue.threads(), sums)) {}

Workspace Workspaces::of(int thread) const {
    return {decoded.row(thread), rows.row(thread), all_sums.row(thread)};
}

void multiply_rows(const op::Weight& weight, std::int64_t first, std::int64_t count,
                   const Operand& x, Instructions instructions, const Workspace& workspace,
                   float* out, const std::byte* next) {
    multiply_stored(weight, first, count, x, instructions, workspace, out, next);
    if (weight.factor == 1.0f) return;
    for (std::int64_t i = 0; i < count; ++i) {
        float* own = out + place_of(i, x.rows());
        for (std::int64_t t = 0; t < x.rows(); ++t) own[t * kPanelRows] *= weight.factor;
    }
}

void multiply_into(const op::Weight& weight, std::int64_t first, std::int64_t count,
                   const Operand& x, Instructions instructions, const Workspace& workspace,
                   MatrixView<float> out) {
    multiply_rounded(weight, first, count, x, instructions, workspace,
                     {out.data + first, kPanelRows, out.cols}, nullptr);
    if (weight.factor == 1.0f) return;
    for (std::int64_t t = 0; t < out.rows; ++t) {
        float* own = out.row(t) + first;
        for (std::int64_t i = 0; i < count; ++i) own[i] *= weight.factor;
    }
}

}  // namespace strata::cpu
