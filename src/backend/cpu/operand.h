// Products of a few weight rows with all rows of an input, whatever the weight's type.
#pragma once

#include <cstdint>

#include "backend/cpu/packed.h"
#include "backend/cpu/product.h"
#include "backend/cpu/quantized/rounded.h"
#include "backend/cpu/queue.h"
#include "op/weight.h"

namespace strata::cpu {

// Input rows as weights of one type want them: rounded, or as they are.
struct Operand {
    Rows plain;
    const float* packed = nullptr;  // the plain rows as packed.h has them, where they are many
    Rounded rounded;                // empty for types that take plain rows
    std::int64_t first_column = 0;  // of the weight, at the first value
    std::int64_t cols = 0;

    bool is_rounded() const { return rounded.form != nullptr; }
    std::int64_t rows() const { return is_rounded() ? rounded.rows : plain.count; }
};

// Whether products of weights of this type round their input.
bool rounds_input(quant::Type type);

// `exact` leaves the input as it is whatever the type.
Operand make_operand(Queue& queue, MatrixView<const float> x, std::int64_t first_column,
                     quant::Type type, bool exact = false);

// Weight rows that are multiplied together: one panel of them where there are few input rows, so
// that threads share the work evenly, several where each input row should be loaded rarely, or
// where rows of `cols` columns are so short that a panel takes no longer than its start.
inline constexpr int kPanelsMax = 4;
inline constexpr std::int64_t kManyInputRows = 32;
inline constexpr std::int64_t kShortPanels = 1024;  // columns that several panels have together
constexpr std::int64_t rows_together(std::int64_t input_rows, std::int64_t cols) {
    const std::int64_t most = input_rows < kManyInputRows ? kShortPanels / cols : kPanelsMax;
    return (most < 1 ? 1 : most > kPanelsMax ? kPanelsMax : most) * kPanelRows;
}

// Memory of one thread for multiply_rows.
struct Workspace {
    float* decoded = nullptr;   // kPackedPanel rows
    std::byte* rows = nullptr;  // kPanelRows rows as stored
    float* sums = nullptr;      // for the caller
};

// One for each thread of the queue, for weights of at most `row_bytes` a row and `cols` columns,
// with `sums` sums.
struct Workspaces {
    Workspaces(Queue& queue, std::int64_t row_bytes, std::int64_t cols, std::int64_t sums);
    Workspace of(int thread) const;

    MatrixView<float> decoded;
    MatrixView<std::byte> rows;
    MatrixView<float> all_sums;
};

// The products of `count` weight rows, panel by panel: that of row first + i with
// x[t] at out[place_of(i, x.rows()) + t * kPanelRows]. The sums of a last panel that is not full
// are overwritten whole. Memory from `next` on is asked for meanwhile, what follows the rows where
// it is null.
constexpr std::int64_t place_of(std::int64_t i, std::int64_t input_rows) {
    return i / kPanelRows * input_rows * kPanelRows + i % kPanelRows;
}
void multiply_rows(const op::Weight& weight, std::int64_t first, std::int64_t count,
                   const Operand& x, Instructions instructions, const Workspace& workspace,
                   float* out, const std::byte* next = nullptr);

// The same for whole panels and a rounded input, with the product of row first + i and x[t] at
// out.row(t)[first + i].
void multiply_into(const op::Weight& weight, std::int64_t first, std::int64_t count,
                   const Operand& x, Instructions instructions, const Workspace& workspace,
                   MatrixView<float> out);

}  // namespace strata::cpu
