// Bounded by memory: at most n rows are copied.
#include "backend/cpu/history.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "base/check.h"

namespace strata::cpu {

void advance_history(const float* from, MatrixView<float> to, MatrixView<const float> window,
                     std::int64_t rows) {
    const std::int64_t taken = std::min(rows, to.rows);
    const std::int64_t kept = to.rows - taken;
    const auto row_bytes = static_cast<std::size_t>(to.cols) * sizeof(float);
    if (kept > 0) {
        std::memmove(to.data, from + taken * to.cols, static_cast<std::size_t>(kept) * row_bytes);
    }
    if (taken > 0) {
        std::memcpy(to.row(kept), window.row(rows - taken),
                    static_cast<std::size_t>(taken) * row_bytes);
    }
}

void shift_history(const op::ShiftHistory& args, device::Queue&) {
    for (const op::ShiftedHistory& one : args.histories) {
        STRATA_CHECK(one.to.cols == one.window.cols);
        STRATA_CHECK(args.kept.fit(one.window.rows));
        const std::int64_t rows = args.kept.wanted();
        if (rows > 0) advance_history(one.from, one.to, one.window, rows);
    }
}

}  // namespace strata::cpu
