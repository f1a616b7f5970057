// Each thread begins with a contiguous range of the rows of all weights, of as much work as the
// others', as far as that is known; or it has rows of the input and all weights, where the input's
// rows are many and the weights small.
#include "backend/cpu/project.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "backend/cpu/operand.h"
#include "base/check.h"
#include "quant/type.h"

namespace strata::cpu {
namespace {

static_assert(Queue::kBlockRows % kPackedTile == 0 && Queue::kBlockRows % kTileRows == 0,
              "blocks of rows are whole tiles");
static_assert(Queue::kBlockStep % kPackedTile == 0, "a thread's rows are whole tiles of packed.h");

// A projection, ready to be computed piece by piece.
struct Task {
    const Projection* projection = nullptr;
    Operand x;
    std::int64_t first = 0;  // work of the tasks before
    std::int64_t rows = 0;   // of a piece
    std::int64_t cost = 0;   // of a piece

    std::int64_t pieces() const { return (projection->weight.rows + rows - 1) / rows; }
};

struct Tasks {
    std::array<Task, kProjectionsMax> all;
    int count = 0;
    std::int64_t cost = 0;
};

// About the cycles that a weight row takes to read or to compute, whichever is more.
std::int64_t row_cost(const op::Weight& weight, const Operand& x) {
    const std::int64_t rate = x.is_rounded() ? 64 : x.packed != nullptr ? 24 : 8;
    return std::max(weight.row_bytes / 4, x.rows() * x.cols / rate) + 1;
}

// Weight rows of a piece. Where nobody shares the work, more pieces only start more often.
std::int64_t piece_rows(const Queue& queue, MatrixView<const float> x) {
    constexpr std::int64_t kPiece = 256;
    const bool alone = queue.threads() == 1 && x.rows < kManyInputRows;
    return alone ? kPiece : rows_together(x.rows, x.cols);
}

// `x` are rows of the input that the projections were made for.
Tasks make_tasks(Queue& queue, MatrixView<const float> x, std::initializer_list<Projection> all) {
    Tasks tasks;
    for (const Projection& one : all) {
        STRATA_CHECK(tasks.count < kProjectionsMax);
        STRATA_CHECK(one.first_column + x.cols <= one.weight.cols);
        Task& task = tasks.all[static_cast<std::size_t>(tasks.count)];
        task.projection = &one;
        const auto same = [&](const Task& other) {
            return other.projection->weight.type == one.weight.type &&
                   other.projection->exact == one.exact &&
                   other.projection->first_column == one.first_column;
        };
        auto* end = tasks.all.data() + tasks.count;
        const auto* found = std::find_if(tasks.all.data(), end, same);
        task.x = found != end
                     ? found->x
                     : make_operand(queue, x, one.first_column, one.weight.type, one.exact);
        task.first = tasks.cost;
        task.rows = piece_rows(queue, x);
        if (!task.x.is_rounded()) task.rows = std::min<std::int64_t>(task.rows, kPackedPanel);
        task.cost = std::min(task.rows, one.weight.rows) * row_cost(one.weight, task.x);
        tasks.cost += task.pieces() * task.cost;
        ++tasks.count;
    }
    return tasks;
}

// Rows first_row .. of the projection's output, as many as the input has.
void run_piece(const Task& task, std::int64_t first_row, std::int64_t piece,
               Instructions instructions, const Workspace& workspace) {
    const Projection& one = *task.projection;
    const std::int64_t rows = task.x.rows();
    const std::int64_t first = piece * task.rows;
    const std::int64_t count = std::min(task.rows, one.weight.rows - first);
    if (task.x.is_rounded() && count % kPanelRows == 0) {
        multiply_into(one.weight, first, count, task.x, instructions, workspace,
                      one.out.rows_from(first_row, rows));
        return;
    }
    multiply_rows(one.weight, first, count, task.x, instructions, workspace, workspace.sums);
    for (std::int64_t t = 0; t < rows; ++t) {
        float* out = one.out.row(first_row + t) + first;
        const float* sums = workspace.sums + t * kPanelRows;
        std::int64_t i = 0;
        for (; i + kPanelRows <= count; i += kPanelRows) {
            std::memcpy(out + i, sums + place_of(i, rows), kPanelRows * sizeof(float));
        }
        std::copy_n(sums + place_of(i, rows), count - i, out + i);
    }
}

// The first piece of a task that starts at `at` or later in all tasks' work.
std::int64_t first_piece(const Task& task, std::int64_t at) {
    return std::clamp<std::int64_t>((at - task.first + task.cost - 1) / task.cost, 0,
                                    task.pieces());
}

void show_inputs(MatrixView<const float> x, std::initializer_list<Projection> all,
                 device::InputObserver& observer) {
    for (const Projection& one : all) {
        for (std::int64_t t = 0; t < x.rows; ++t) {
            observer.input(one.weight.data, one.first_column,
                           {x.row(t), static_cast<std::size_t>(x.cols)});
        }
    }
}

// Rows first_row .. first_row+x.rows-1 of the projections' outputs from those of the input, `x`.
void project_rows(Queue& queue, MatrixView<const float> x, std::int64_t first_row,
                  std::initializer_list<Projection> all) {
    const Tasks tasks = make_tasks(queue, x, all);
    std::int64_t cols = 0;
    std::int64_t bytes = 0;
    for (const Projection& one : all) {
        cols = std::max(cols, one.weight.cols);
        bytes = std::max(bytes, one.weight.row_bytes);
    }
    const Workspaces workspaces(queue, bytes, cols, piece_rows(queue, x) * x.rows);
    const std::span all_tasks(tasks.all.data(), static_cast<std::size_t>(tasks.count));
    const auto cut = [&](std::int64_t thread) {
        std::int64_t pieces = 0;
        for (const Task& task : all_tasks) {
            pieces += first_piece(task, tasks.cost * thread / queue.threads());
        }
        return pieces;
    };
    queue.share(cut(queue.threads()), 4 * tasks.cost, cut, [&](std::int64_t piece, int thread) {
        const Task* task = all_tasks.data();
        for (; piece >= task->pieces(); ++task) piece -= task->pieces();
        run_piece(*task, first_row, piece, queue.instructions(), workspaces.of(thread));
    });
}

// Weights that a thread would have in its cache together.
class Together {
  public:
    void add(const op::Weight& weight) {
        // A longer matrix is packed for each block, of which there should be few then.
        constexpr std::int64_t kPlainRowsMost = 8;
        packed_ = packed_ || (!rounds_input(weight.type) && weight.rows > kPlainRowsMost);
        bytes_ += weight.rows * weight.row_bytes;
    }

    // As divided_rows says of these weights.
    std::int64_t block(const Queue& queue, std::int64_t rows) const {
        // What stays in a core's cache beside the rows.
        constexpr std::int64_t kBytesMost = 512 << 10;
        if (!queue.divides_rows(rows) || bytes_ > kBytesMost) return 0;
        return packed_ ? queue.rows_a_thread(rows) : Queue::kBlockRows;
    }

  private:
    std::int64_t bytes_ = 0;
    bool packed_ = false;
};

}  // namespace

std::int64_t divided_rows(const Queue& queue, std::int64_t rows,
                          std::initializer_list<const op::Weight*> weights) {
    Together together;
    for (const op::Weight* weight : weights) together.add(*weight);
    return together.block(queue, rows);
}

void project(Queue& queue, MatrixView<const float> x, std::initializer_list<Projection> all) {
    if (x.rows == 0) return;
    if (queue.observer() != nullptr) show_inputs(x, all, *queue.observer());
    Together together;
    bool divided = true;
    for (const Projection& one : all) {
        STRATA_CHECK(one.out.rows == x.rows && one.out.cols == one.weight.rows);
        together.add(one.weight);
        divided = divided && !(one.exact && rounds_input(one.weight.type));
    }
    const std::int64_t block = divided ? together.block(queue, x.rows) : 0;
    if (block == 0) return project_rows(queue, x, 0, all);
    queue.by_rows(x.rows, block, [&](Queue& one, std::int64_t begin, std::int64_t end) {
        project_rows(one, x.rows_from(begin, end - begin), begin, all);
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
