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

// Calls of multiply that `panels` panels and `rows` input rows take.
std::int64_t calls_for(int panels, std::int64_t rows) {
    std::int64_t tiles = 0;
    for (std::int64_t t = 0; t < rows; t += tile_rows(rows - t)) ++tiles;
    return tiles * ((panels + 1) / 2);
}

// `ahead` is for all of them together, its lines for each group of each call.
void multiply_panels(const Routine& routine, const quant::IntegerForm& form, const Panel* panels,
                     int count, int columns, const TilesAt& tiles, std::int64_t input_rows,
                     const Sums& sums, Ahead ahead) {
    const std::int64_t call_lines = ahead.lines * groups_in(columns, form.group);
    for (std::int64_t t = 0; t < input_rows;) {
        const Tile tile = tiles.from(t);
        for (int p = 0; p < count; p += 2) {
            routine.multiply(form, panels + p, std::min(count - p, 2), columns, tile,
                             sums.panel(p).row(t), ahead);
            ahead.at += call_lines * Ahead::kLine;
        }
        t += tile.rows;
    }
}

// Input rows from which on multiply takes long beside unpack.
constexpr std::int64_t kMoreRows = 3;

// What products of one weight's rows with a rounded input share.
struct Product {
    const op::Weight& weight;
    const Rounded& x;
    const quant::TypeInfo& type;
    const Routine& routine;
    std::int64_t offset;  // of the first column's block in a row

    std::int64_t bytes_of(std::int64_t columns) const {
        return groups_in(columns, type.block) * type.block_bytes;
    }
    // Bytes of memory ahead that unpack asks for with `columns` columns of a panel.
    std::int64_t asked_with(std::int64_t columns) const {
        return routine.asked == 0 ? kPanelRows * bytes_of(columns)
                                  : groups_in(columns, type.block) * routine.asked;
    }
    // What is left for multiply, all calls for `panels` panels together.
    Ahead rest_of(const std::byte* next, int panels, int columns) const {
        if (routine.asked == 0) return {};
        const std::int64_t asked = panels * asked_with(columns);
        const std::int64_t lines = (panels * kPanelRows * bytes_of(columns) - asked) / Ahead::kLine;
        const std::int64_t steps =
            calls_for(panels, x.rows) * groups_in(columns, type.integers->group);
        return {next + asked, (lines + steps - 1) / steps};
    }
};

// At most kPanelsMax panels, through panels of integers.
void multiply_unpacked(const Product& product, const std::byte* const* starts, int used,
                       const std::byte* next, Sums sums) {
    Panel panels[kPanelsMax];
    TilesAt tiles(product.x);
    const std::byte* rows[kPanelsMax];
    std::copy_n(starts, used, rows);
    for (std::int64_t col = 0; col < product.x.cols; col += kPanelCols, tiles.next_panel()) {
        sums.fresh = col == 0;
        const auto columns =
            static_cast<int>(std::min<std::int64_t>(kPanelCols, product.x.cols - col));
        const std::int64_t bytes = product.bytes_of(columns);
        for (int p = 0; p < used; ++p) {
            product.routine.unpack(product.type, rows[p], product.weight.row_bytes, columns,
                                   next + p * product.asked_with(columns), panels[p]);
            rows[p] += bytes;
        }
        multiply_panels(product.routine, *product.type.integers, panels, used, columns, tiles,
                        product.x.rows, sums, product.rest_of(next, used, columns));
        next += used * kPanelRows * bytes;
    }
}

// Whole panels of a weight, and one input row.
void multiply_one(const Product& product, const std::byte* rows, std::int64_t panels,
                  const std::byte* next, const Sums& sums) {
    const Rounded& x = product.x;
    const Tile row{1, reinterpret_cast<const std::int8_t*>(x.codes), x.scales, x.sums};
    product.routine.multiply_one(rows, product.weight.row_bytes, x.cols, panels, next, row, sums);
}

void multiply_rounded(const op::Weight& weight, std::int64_t first, std::int64_t count,
                      const Operand& x, Instructions instructions, const Workspace& workspace,
                      const Sums& sums, const std::byte* next) {
    const quant::TypeInfo& type = quant::info(weight.type);
    const Routine& routine = find_routine(weight.type, instructions);
    Product product{weight, x.rounded, type, routine, 0};
    product.offset = product.bytes_of(x.first_column);
    const bool one = x.rounded.rows == 1 && routine.multiply_one != nullptr;
    // Where multiply is short, pairs of panels spread what is asked for more evenly.
    const bool pairs = routine.asked != 0 && x.rounded.rows < kMoreRows;
    const std::int64_t together = (pairs ? 2 : kPanelsMax) * kPanelRows;
    for (std::int64_t i = 0; i < count; i += together) {
        const std::int64_t batch = std::min(count - i, together);
        const std::byte* ahead =
            next == nullptr ? weight.row(first + i + batch) : next + i * weight.row_bytes;
        const Sums own = sums.panel(static_cast<int>(i / kPanelRows));
        if (one && batch % kPanelRows == 0) {
            multiply_one(product, weight.row(first + i) + product.offset, batch / kPanelRows, ahead,
                         own);
            continue;
        }
        const std::byte* rows[kPanelsMax];
        int used = 0;
        for (std::int64_t r = 0; r < batch; r += kPanelRows, ++used) {
            const std::int64_t there = std::min<std::int64_t>(batch - r, kPanelRows);
            rows[used] = panel_rows(weight, first + i + r, there, product.offset, workspace.rows);
        }
        multiply_unpacked(product, rows, used, ahead, own);
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
