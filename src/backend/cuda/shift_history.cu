// Bounded by memory: at most n rows are copied. One thread a column, walking down it, so that
// moving rows up in place overwrites nothing that is still to be read.
#include <algorithm>
#include <array>

#include "backend/cuda/history.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

// Of one launch: their places are parameters.
constexpr int kHistoriesMost = 16;

struct Shift {
    std::array<op::ShiftedHistory, kHistoriesMost> history;
    op::KeptRows kept;
};

// Block (columns, history).
__global__ void __launch_bounds__(kBlockThreads) shift_columns(const __grid_constant__ Shift args) {
    follow_earlier_kernels();
    const op::ShiftedHistory& one = args.history[blockIdx.y];
    const std::int64_t column = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
    const std::int64_t rows = args.kept.wanted();
    if (column >= one.to.cols || rows == 0) return;
    for (std::int64_t r = 0; r < one.to.rows; ++r) {
        const std::int64_t at = r + rows;  // of from ++ window
        one.to.row(r)[column] = at < one.to.rows ? one.from[at * one.to.cols + column]
                                                 : one.window.row(at - one.to.rows)[column];
    }
}

void launch_histories(device::Queue& queue, std::span<const op::ShiftedHistory> histories,
                      const op::KeptRows& kept) {
    Shift all{.history = {}, .kept = kept};
    std::copy(histories.begin(), histories.end(), all.history.begin());
    std::int64_t cols = 0;
    for (const op::ShiftedHistory& one : histories) cols = std::max(cols, one.to.cols);
    const auto across = static_cast<unsigned>((cols + kBlockThreads - 1) / kBlockThreads);
    launch_dependent(queue, {dim3(across, static_cast<unsigned>(histories.size())), kBlockThreads},
                     shift_columns, all);
}

}  // namespace

void advance_history(device::Queue& queue, const float* from, MatrixView<float> to,
                     MatrixView<const float> window, std::int64_t rows) {
    STRATA_CHECK(rows >= 1);
    if (to.rows == 0) return;
    const op::ShiftedHistory one{from, to, window};
    launch_histories(queue, {&one, 1}, {rows});
}

void shift_history(const op::ShiftHistory& args, device::Queue& queue) {
    for (const op::ShiftedHistory& one : args.histories) {
        STRATA_CHECK(one.to.cols == one.window.cols);
        STRATA_CHECK(args.kept.fit(one.window.rows));
    }
    for (auto rest = args.histories; !rest.empty();) {
        const auto now = rest.first(std::min<std::size_t>(rest.size(), kHistoriesMost));
        launch_histories(queue, now, args.kept);
        rest = rest.subspan(now.size());
    }
}

}  // namespace strata::cuda
